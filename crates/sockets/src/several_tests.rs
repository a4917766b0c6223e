//! A device with several connections over kernel sockets: it listens, learns who connects, and is the one who does.

use crate::endpoint::KernelSockets;
use device::Worker;
use protocol::meter::{Counts, Failure};
use protocol::model::{ConnId, Cx, Model};
use protocol::time::Time;
use run::{Control, Plan, Trial};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LISTENER: ConnId = ConnId(1);
/// Three that it opens towards its own listener, and one to where nobody listens.
const OPENED: [ConnId; 3] = [ConnId(2), ConnId(3), ConnId(4)];
const NOWHERE: ConnId = ConnId(5);

/// What the device saw.
#[derive(Debug, Default)]
struct Seen {
    local: Option<SocketAddr>,
    /// Who connected, or sent a datagram, and what came from them.
    peers: BTreeMap<SocketAddr, String>,
    /// What came back, by connection.
    replies: BTreeMap<ConnId, String>,
    closed: Vec<(ConnId, Failure)>,
    done: bool,
}

#[derive(Debug)]
struct Device {
    seen: Arc<Mutex<Seen>>,
    /// Who is at the other end of what was accepted.
    accepted: BTreeMap<ConnId, SocketAddr>,
    nowhere: SocketAddr,
}

impl Device {
    fn see<R>(&self, f: impl FnOnce(&mut Seen) -> R) -> R {
        f(&mut self.seen.lock().expect("no panic elsewhere"))
    }

    /// All that was asked for has come: end the flow.
    fn finish(&self, cx: &mut Cx<'_>) {
        let done = self.see(|seen| {
            let replied =
                OPENED.iter().all(|id| seen.replies.get(id).is_some_and(|text| text.ends_with('!')));
            let hung_up = OPENED.iter().all(|id| seen.closed.contains(&(*id, Failure::Closed)));
            replied
                && (hung_up || self.accepted.is_empty())
                && (seen.closed.iter().any(|(id, _)| *id == NOWHERE))
        });
        if done {
            self.see(|seen| seen.done = true);
            cx.finish();
            cx.close();
        }
    }
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        cx.listen(LISTENER, ([127, 0, 0, 1], 0).into());
        cx.connect_to(NOWHERE, Some(self.nowhere));
    }

    fn listening(&mut self, cx: &mut Cx<'_>, local: SocketAddr) {
        assert_eq!(cx.conn, LISTENER);
        self.see(|seen| seen.local = Some(local));
        OPENED.iter().for_each(|id| cx.connect_to(*id, Some(local)));
    }

    fn accepted(&mut self, cx: &mut Cx<'_>, peer: SocketAddr) {
        assert!(cx.conn >= ConnId::ACCEPTED && self.accepted.insert(cx.conn, peer).is_none());
        self.see(|seen| assert!(seen.peers.insert(peer, String::new()).is_none(), "each is another"));
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        // one of them through the other way of sending
        let text = format!("hello {}", cx.conn.0);
        match cx.conn {
            NOWHERE => cx.out.bytes.extend_from_slice(b"?"),
            conn if conn == OPENED[0] => cx.send_on(conn, text.as_bytes()),
            _ => cx.out.bytes.extend_from_slice(text.as_bytes()),
        }
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let text = String::from_utf8_lossy(bytes).into_owned();
        // whole messages only: the rest is shown again
        let whole = text.len() == "hello N".len() || text.len() == "hello N!".len();
        if !whole {
            return 0;
        }
        if let Some(peer) = cx.peer.or_else(|| self.accepted.get(&cx.conn).copied()) {
            self.see(|seen| seen.peers.insert(peer, text.clone()));
            let reply = text.clone() + "!";
            if cx.peer.is_some() && text.ends_with('3') {
                cx.send_to(cx.conn, peer, reply.as_bytes());
            } else {
                cx.out.bytes.extend_from_slice(reply.as_bytes());
            }
            if self.accepted.contains_key(&cx.conn) {
                cx.close_conn(cx.conn);
            }
        } else {
            let conn = cx.conn;
            self.see(|seen| seen.replies.insert(conn, text));
            self.finish(cx);
        }
        bytes.len()
    }

    fn timer(&mut self, _: &mut Cx<'_>) {}

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if OPENED.contains(&cx.conn) {
            cx.excuse();
        }
        let conn = cx.conn;
        self.see(|seen| seen.closed.push((conn, why)));
        self.finish(cx);
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        cx.finish();
    }

    fn abandoned(&mut self, _: &mut Cx<'_>) {}

    fn waiting_since(&self) -> Time {
        Time::NEVER
    }
}

/// Run one flow of it; `nowhere`: where nobody listens.
fn run(target: &str, nowhere: SocketAddr) -> (Seen, Counts) {
    let text = format!(
        r#"{{"name": "t", "groups": [{{"name": "g", "target": "{target}", "load": {{"closed": {{"flows": 1}}}},
            "model": {{"script": {{"steps": [{{"send": "x"}}]}}}}}}]}}"#
    );
    let profile = profile::load(&text).unwrap_or_else(|e| panic!("{e:#?}"));
    let mut plan = Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}"));
    // a listener, three that it opens and accepts, and one to nowhere
    plan.groups[0].connections = 8;
    let plan = Arc::new(plan);
    let second = 1_000_000_000;
    let control = Arc::new(Control::new(0, 3_600 * second, second, second));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (samples, received) = channel();
    let (theirs, whole, shared) = (Arc::clone(&control), plan, Arc::clone(&seen));
    let worker = std::thread::spawn(move || {
        let device = |_: &run::GroupPlan, _: u32| Device {
            seen: Arc::clone(&shared),
            accepted: BTreeMap::new(),
            nowhere,
        };
        let sockets = KernelSockets::new().expect("an epoll set");
        Worker::with_devices(sockets, (0, 1), whole, theirs, samples, device).run();
    });
    control.go();
    let began = Instant::now();
    while !seen.lock().expect("no panic").done && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(2));
    }
    control.stop();
    worker.join().expect("the worker ends");
    let mut counts = Counts::default();
    received.iter().flat_map(|sample| sample.groups).flatten().for_each(|tally| counts += &tally.counts);
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    (seen, counts)
}

fn all_came(seen: &Seen, counts: &Counts) {
    assert!(seen.done, "{seen:?}");
    let said: Vec<&str> = seen.peers.values().map(String::as_str).collect();
    let mut sorted = said.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["hello 2", "hello 3", "hello 4"], "each peer is known by its own address");
    assert!(seen.peers.keys().all(|peer| peer.ip().is_loopback() && Some(*peer) != seen.local));
    for id in OPENED {
        assert_eq!(seen.replies[&id], format!("hello {}!", id.0), "replies come where they belong");
    }
    assert_eq!((counts.flows_started, counts.flows_completed, counts.flows_failed), (1, 1, 0));
}

#[test]
fn a_device_listens_accepts_and_holds_three_connections() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let (seen, counts) = run("tcp://127.0.0.1:9", free);
    all_came(&seen, &counts);
    assert!(seen.closed.contains(&(NOWHERE, Failure::Refused)), "{:?}", seen.closed);
    assert_eq!(counts.failures[Failure::Refused as usize], 1);
    // those that the other end closed, in good order, are no failures
    assert_eq!(counts.failures.iter().sum::<u64>(), 1, "{:?}", counts.failures);
}

#[test]
fn a_listening_datagram_socket_knows_who_sent_what_and_answers_each() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let (seen, counts) = run("udp://127.0.0.1:9", free);
    all_came(&seen, &counts);
    // the port was free again when the datagram came: ICMP says so
    assert!(seen.closed.contains(&(NOWHERE, Failure::Refused)), "{:?}", seen.closed);
    assert_eq!(counts.failures[Failure::Refused as usize], 1);
}

#[test]
fn what_cannot_be_listened_on_is_told_to_the_model() {
    struct Asks(Arc<Mutex<Vec<(ConnId, Failure)>>>);
    impl Model for Asks {
        fn start(&mut self, cx: &mut Cx<'_>) {
            // documentation addresses are nobody's (RFC 5737)
            cx.listen(LISTENER, ([192, 0, 2, 1], 0).into());
        }
        fn connected(&mut self, _: &mut Cx<'_>) {}
        fn received(&mut self, _: &mut Cx<'_>, bytes: &[u8]) -> usize {
            bytes.len()
        }
        fn timer(&mut self, _: &mut Cx<'_>) {}
        fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
            self.0.lock().expect("no panic").push((cx.conn, why));
            cx.give_up();
        }
        fn stop(&mut self, _: &mut Cx<'_>) {}
        fn abandoned(&mut self, _: &mut Cx<'_>) {}
        fn waiting_since(&self) -> Time {
            Time::NEVER
        }
    }
    let text = r#"{"name": "t", "groups": [{"name": "g", "target": "tcp://127.0.0.1:9",
        "load": {"closed": {"flows": 1}}, "model": {"script": {"steps": [{"send": "x"}]}}}]}"#;
    let profile = profile::load(text).unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let control = Arc::new(Control::new(0, 100_000_000, 100_000_000, 1_000_000_000));
    let told = Arc::new(Mutex::new(Vec::new()));
    let (samples, received) = channel();
    let sockets = KernelSockets::new().expect("an epoll set");
    let device = |_: &run::GroupPlan, _: u32| Asks(Arc::clone(&told));
    control.go();
    Worker::with_devices(sockets, (0, 1), plan, control, samples, device).run();
    assert_eq!(*told.lock().expect("no panic"), [(LISTENER, Failure::Local)]);
    let mut counts = Counts::default();
    received.iter().flat_map(|sample| sample.groups).flatten().for_each(|tally| counts += &tally.counts);
    assert_eq!((counts.flows_failed, counts.failures[Failure::Local as usize]), (1, 1));
}

/// Listens, and has nothing to say to those who connect.
struct Host(Arc<Mutex<Vec<SocketAddr>>>, u32);

impl Model for Host {
    fn start(&mut self, cx: &mut Cx<'_>) {
        cx.listen(LISTENER, ([127, 0, 0, 1], 0).into());
    }
    fn listening(&mut self, _: &mut Cx<'_>, local: SocketAddr) {
        self.0.lock().expect("no panic").push(local);
    }
    fn accepted(&mut self, _: &mut Cx<'_>, _: SocketAddr) {
        self.1 += 1;
    }
    fn connected(&mut self, _: &mut Cx<'_>) {}
    fn received(&mut self, _: &mut Cx<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn timer(&mut self, _: &mut Cx<'_>) {}
    fn closed(&mut self, _: &mut Cx<'_>, _: Failure) {}
    fn stop(&mut self, cx: &mut Cx<'_>) {
        assert_eq!(self.1, 2, "with the one that listens they are three");
        cx.finish();
    }
    fn abandoned(&mut self, _: &mut Cx<'_>) {}
    fn waiting_since(&self) -> Time {
        Time::NEVER
    }
}

#[test]
fn no_more_connections_are_accepted_than_the_model_provides_for_and_others_are_counted() {
    use std::io::Read;
    let text = r#"{"name": "t", "groups": [{"name": "g", "target": "tcp://127.0.0.1:9",
        "load": {"closed": {"flows": 1}}, "model": {"script": {"steps": [{"send": "x"}]}}}]}"#;
    let profile = profile::load(text).unwrap_or_else(|e| panic!("{e:#?}"));
    let mut plan = Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}"));
    plan.groups[0].connections = 3;
    let second = 1_000_000_000;
    let control = Arc::new(Control::new(0, 3_600 * second, second, second));
    let (samples, received) = channel();
    let address = Arc::new(Mutex::new(Vec::new()));
    let (theirs, told) = (Arc::clone(&control), Arc::clone(&address));
    let worker = std::thread::spawn(move || {
        let sockets = KernelSockets::new().expect("an epoll set");
        let device = |_: &run::GroupPlan, _: u32| Host(Arc::clone(&told), 0);
        Worker::with_devices(sockets, (0, 1), Arc::new(plan), theirs, samples, device).run();
    });
    control.go();
    let mut to = None;
    while to.is_none() {
        std::thread::sleep(Duration::from_millis(1));
        to = address.lock().expect("no panic").first().copied();
    }
    let connect = |_| std::net::TcpStream::connect(to.expect("it listens")).expect("it is taken up");
    let mut peers: Vec<std::net::TcpStream> = (0..5).map(connect).collect();
    // three of them are hung up on, whichever they are
    let mut hung_up = 0;
    while hung_up < 3 {
        peers.retain_mut(|peer| {
            peer.set_read_timeout(Some(Duration::from_millis(10))).expect("a time");
            let open = !matches!(peer.read(&mut [0]), Ok(0));
            hung_up += u32::from(!open);
            open
        });
    }
    control.stop();
    worker.join().expect("the worker ends");
    let mut counts = Counts::default();
    received.iter().flat_map(|sample| sample.groups).flatten().for_each(|tally| counts += &tally.counts);
    assert_eq!((counts.failures[Failure::Local as usize], counts.failures.iter().sum::<u64>()), (3, 3));
    assert_eq!((counts.flows_completed, peers.len()), (1, 2));
}
