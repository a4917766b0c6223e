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

/// Descriptors of this process, and its memory, bytes.
fn resources() -> (usize, usize) {
    let open = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory");
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (open, kibibytes << 10)
}

fn asks(at: SocketAddr, number: u64) {
    let mut client = TcpStream::connect(at).expect("connection");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    let local = client.local_addr().expect("address");
    client.write_all(&options("TCP", local, number)).expect("sent");
    let mut answer = [0; 4096];
    let length = client.read(&mut answer).expect("an answer");
    assert!(answer[..length].starts_with(b"SIP/2.0 200"), "{number}");
}

#[test]
fn connections_that_say_nothing_make_room_for_those_that_do() {
    const MOST: usize = 100;
    let mut listener = Listener::bind("127.0.0.1:0".parse().expect("address")).expect("sockets");
    listener.most = MOST;
    let at = listener.local();
    let mut settings = Settings::new(at, "example.net");
    settings.t1_ms = 10_000;
    let mut server = Server::new(settings);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| listener.run(&mut server, &stop, |_| {}));
        let ended = std::panic::catch_unwind(|| {
            let mut silent = Vec::new();
            for _ in 0..3 * MOST {
                silent.push(TcpStream::connect(at).expect("connection"));
            }
            for number in 0..10 {
                asks(at, number);
            }
            // the oldest have gone, and the latest have not
            let mut oldest = &silent[0];
            oldest.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
            assert_eq!(oldest.read(&mut [0]).expect("it ended"), 0);
            let mut latest = &silent[3 * MOST - 1];
            latest.write_all(&options("TCP", at, 99)).expect("sent");
            latest.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
            assert!(latest.read(&mut [0; 4096]).expect("an answer") > 0);
        });
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("no panic").expect("sockets");
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(listener.connections.len() <= MOST);
    assert!(server.counters().connections_given_up["too many"] >= 2 * MOST as u64);
}

/// Requests of strangers, over TCP and UDP, leave nothing behind but their transactions, which end.
#[test]
fn a_loop_of_foreign_requests_keeps_descriptors_and_memory_flat() {
    const ROUNDS: u64 = 10;
    const EACH: u64 = 200;
    let counted = served(10, |at| {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("socket");
        udp.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        let local = udp.local_addr().expect("address");
        let mut after = Vec::new();
        for round in 0..ROUNDS {
            for number in round * EACH..(round + 1) * EACH {
                if number % 10 == 0 {
                    asks(at, number);
                } else {
                    udp.send_to(&options("UDP", local, number), at).expect("sent");
                    udp.recv(&mut [0; 4096]).expect("an answer");
                }
            }
            after.push(resources());
        }
        let (first, last) = (after[1], after[after.len() - 1]);
        assert!(last.0 <= first.0 + 32, "descriptors: {after:?}");
        assert!(last.1 <= first.1 + (16 << 20), "memory: {after:?}");
    });
    assert_eq!(counted.requests.get("OPTIONS"), Some(&(ROUNDS * EACH)));
}

#[test]
fn messages_of_a_turn_leave_together() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connection");
    let (stream, _) = listener.accept().expect("connection");
    stream.set_nonblocking(true).expect("non-blocking");
    client.set_nonblocking(true).expect("non-blocking");
    let (mut server, mut came) = (Connection::new(stream), vec![0; 1 << 20]);
    for _ in 0..10 {
        server.send(&[b'x'; 500]).expect("room");
    }
    assert!(client.read(&mut came).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    server.flush();
    client.set_nonblocking(false).expect("blocking");
    assert_eq!(client.read(&mut came).expect("bytes"), 5_000, "one segment");
    // many do not wait for the others
    for _ in 0..100 {
        server.send(&[b'x'; 500]).expect("room");
    }
    assert!(client.read(&mut came).expect("bytes") >= 16_000);
}
