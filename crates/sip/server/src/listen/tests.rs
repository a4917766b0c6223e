use super::*;
use crate::Settings;
use std::io::{Read, Write};
use std::thread;

/// Serve on loopback while `clients` run; what was counted.
fn served(t1_ms: u64, clients: impl FnOnce(SocketAddr)) -> crate::Counters {
    let mut listener = Listener::bind("127.0.0.1:0".parse().expect("address")).expect("sockets");
    let at = listener.local();
    let mut settings = Settings::new(at, "example.net");
    settings.t1_ms = t1_ms;
    let mut server = Server::new(settings);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| listener.run(&mut server, &stop, |_| {}));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clients(at)));
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("no panic").expect("sockets");
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    server.counters().clone()
}

fn options(transport: &str, sent_by: SocketAddr, number: u64) -> Vec<u8> {
    format!(
        "OPTIONS sip:example.net SIP/2.0\r\nVia: SIP/2.0/{transport} {sent_by};branch=z9hG4bK{number}\r\n\
         From: <sip:a@b>;tag=1\r\nTo: <sip:a@b>\r\nCall-ID: c{number}\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

#[test]
fn a_client_that_says_nothing_is_given_up() {
    let counted = served(50, |at| {
        let mut silent = TcpStream::connect(at).expect("connection");
        let mut speaks = TcpStream::connect(at).expect("connection");
        speaks.write_all(&options("TCP", at, 1)).expect("sent");
        silent.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        assert_eq!(silent.read(&mut [0]).expect("it ends"), 0);
        speaks.set_nonblocking(true).expect("non-blocking");
        let mut answer = [0; 4096];
        assert!(speaks.read(&mut answer).expect("an answer") > 0);
        assert!(
            speaks.read(&mut answer).is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
            "it stays"
        );
    });
    assert_eq!(counted.connections_given_up.get("no message in 64 T1"), Some(&1), "{counted:?}");
}

#[test]
fn a_client_that_does_not_read_stops_no_other_and_is_given_up() {
    let counted = served(500, |at| {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut flood = TcpStream::connect(at).expect("connection");
                let local = flood.local_addr().expect("address");
                flood.set_write_timeout(Some(Duration::from_millis(100))).expect("timeout");
                let many: Vec<u8> = (0..1000).flat_map(|number| options("TCP", local, number)).collect();
                while !stop.load(Ordering::Relaxed) {
                    match flood.write(&many) {
                        Err(error) if !later(&error) => break,
                        _ => {}
                    }
                }
            });
            let udp = UdpSocket::bind("127.0.0.1:0").expect("socket");
            udp.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
            let local = udp.local_addr().expect("address");
            for number in 0..20 {
                udp.send_to(&options("UDP", local, number), at).expect("sent");
                udp.recv(&mut [0; 4096]).expect("an answer while another floods");
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(counted.unrelated, 0, "it answered itself: {counted:?}");
}

fn later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[test]
fn the_system_drops_datagrams_that_nobody_reads_and_it_is_told() {
    let mut listener = Listener::bind("127.0.0.1:0".parse().expect("address")).expect("sockets");
    let at = listener.local();
    let mut server = Server::new(Settings::new(at, "example.net"));
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener.udp, 4096).expect("a small buffer");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("socket");
    for _ in 0..200 {
        udp.send_to(&[b'x'; 1000], at).expect("sent");
    }
    listener.sweep(&mut server);
    let dropped = server.counters().datagrams_dropped_here;
    assert!((100..=200).contains(&dropped), "{dropped}");
    listener.sweep(&mut server);
    assert_eq!(server.counters().datagrams_dropped_here, dropped, "each is counted once");
}
