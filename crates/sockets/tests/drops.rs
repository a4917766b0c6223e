//! Our own receive queue: what it drops is neither the network's loss nor part of a valid measurement.

use crate::lab::{profile, run_with};
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// What the peer sends that nobody asked for: more than our queue holds.
const FLOOD: usize = 20_000;
const SIZE: usize = 32;

/// Sends back what comes, and floods who asked last when told to. Returns what came and what it flooded with.
fn peer(socket: &UdpSocket, known: &Sender<SocketAddr>, orders: &Receiver<Sender<()>>) -> (u64, u64) {
    let mut bytes = [0; 2048];
    let (mut came, mut flooded, mut last) = (0, 0, None);
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("timeout");
    loop {
        if let Ok((n, from)) = socket.recv_from(&mut bytes) {
            came += 1;
            socket.send_to(&bytes[..n], from).expect("echo");
            last = Some(from);
            let _known_already = known.send(from);
        }
        match (orders.try_recv(), last) {
            (Ok(done), Some(from)) => {
                flooded += (0..FLOOD).filter(|_| socket.send_to(&[0; SIZE], from).is_ok()).count() as u64;
                done.send(()).expect("the test waits");
            }
            (Err(TryRecvError::Disconnected), _) => return (came, flooded),
            _ => {}
        }
    }
}

#[test]
fn what_our_own_queue_has_no_room_for_makes_the_run_invalid_and_is_no_loss() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = socket.local_addr().expect("bound");
    let ((orders, ordered), (knows, known)) = (channel(), channel());
    let peer = std::thread::spawn(move || peer(&socket, &knows, &ordered));
    let mut wanted = profile(json!([{"name": "s", "target": format!("udp://{address}"), "devices": 1,
        "model": {"stream": {"rate": "50/s", "size": "32B"}}}]));
    wanted["phases"] = json!({"warmup": "0s", "measure": "1h", "drain": "2s", "sample": "100ms"});
    let (result, _) = run_with(&wanted, |control| {
        known.recv_timeout(Duration::from_secs(20)).expect("a datagram");
        // while it stands still nothing is read
        control.pause();
        std::thread::sleep(Duration::from_millis(200));
        let (done, flooded) = channel();
        orders.send(done).expect("the peer");
        flooded.recv_timeout(Duration::from_secs(60)).expect("a flood");
        control.resume();
        std::thread::sleep(Duration::from_millis(300));
        control.stop();
    });
    drop(orders);
    let (came, flooded) = peer.join().expect("the peer");
    assert_eq!(flooded, FLOOD as u64);
    let group = &result.groups[0];
    let count = |name: &str| group.measured[name].as_u64().expect("a count");
    let (sent, delivered, dropped) =
        (count("messages_sent"), count("messages_delivered"), count("receive_drops"));
    assert!(dropped > 0, "{:?}", group.measured);
    // whatever the peer sent was read, or dropped by our queue
    assert_eq!(delivered + count("corrupted") + dropped, came + flooded, "{:?}", group.measured);
    assert_eq!(sent, delivered + group.measured["failures"]["unanswered"].as_u64().unwrap_or(0));
    assert_eq!((sent, group.loss), (came, Some(0.0)), "nothing was lost on the way");
    let reason = result.validity.reasons.iter().find(|reason| reason.code == "ND-90-04").expect("a reason");
    assert_eq!(reason.value, dropped as f64);
    assert!(reason.what.starts_with(&format!("{dropped} datagrams dropped by our own receive queue")));
    assert!(reason.what.contains("net.core.rmem_max"), "{}", reason.what);
}
