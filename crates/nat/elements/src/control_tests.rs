use super::*;
use dpdk::{Batch, Eal, EalOptions};
use engine::{ControlError, Cx, Element, ElementInfo, Engine, Graph, Options, Placement};
use nat_core::MappingRequest;
use nat_core::testing::{NOW, REMOTE, inside, nat, send};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// All pages of sessions.
fn pages(nat: &Nat, filter: SessionFilter, limit: usize) -> Vec<SessionPage> {
    let mut pages: Vec<SessionPage> = Vec::new();
    let mut from = Some(0);
    while let Some(line) = from {
        let page = sessions(nat, &Sessions { from: line, limit, filter }, NOW);
        from = page.next;
        pages.push(page);
    }
    pages
}

fn all(nat: &Nat, filter: SessionFilter) -> Vec<SessionView> {
    pages(nat, filter, PAGE).into_iter().flat_map(|page| page.sessions).collect()
}

#[test]
fn every_session_is_shown_once_whatever_the_limit() {
    let mut nat = nat();
    for port in 1..=350 {
        send(&mut nat, inside(1, port), REMOTE);
        send(&mut nat, inside(2, port), REMOTE);
    }
    for (limit, most, count) in
        [(0, 1, 700), (1, 1, 700), (7, 7, 100), (PAGE, PAGE, 3), (usize::MAX, PAGE, 3)]
    {
        let pages = pages(&nat, SessionFilter::default(), limit);
        assert!(pages.iter().all(|page| page.sessions.len() <= most), "{limit}");
        let shown: Vec<_> = pages.iter().flat_map(|page| &page.sessions).map(|one| one.inside).collect();
        assert_eq!((shown.len(), shown.iter().collect::<BTreeSet<_>>().len()), (700, 700), "{limit}");
        assert_eq!(pages.len(), count, "{limit}");
    }
}

#[test]
fn a_filter_chooses_by_subscriber_and_by_outside_endpoint() {
    let mut nat = nat();
    let other = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 80);
    for (from, to) in
        [(inside(1, 5), REMOTE), (inside(1, 5), other), (inside(1, 6), REMOTE), (inside(2, 5), REMOTE)]
    {
        send(&mut nat, from, to);
    }
    let subscriber = SessionFilter { subscriber: Some(Ipv4Addr::new(10, 0, 0, 1)), ..Default::default() };
    let found = all(&nat, subscriber);
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|one| *one.inside.ip() == Ipv4Addr::new(10, 0, 0, 1)));
    // A mapping that two sessions share.
    let outside = found[0].outside;
    let endpoint = SessionFilter {
        outside: Some(*outside.ip()),
        outside_port: Some(outside.port()),
        ..SessionFilter::default()
    };
    let found = all(&nat, endpoint);
    assert!(found.len() == 2 && found.iter().all(|one| one.inside == inside(1, 5)), "{found:?}");
    let remotes: BTreeSet<_> = found.iter().filter_map(|one| one.remote).collect();
    assert_eq!(remotes, BTreeSet::from([REMOTE, other]));
    let address = SessionFilter { outside: Some(*outside.ip()), ..SessionFilter::default() };
    assert_eq!((all(&nat, address).len(), all(&nat, SessionFilter::default()).len()), (4, 4));
    let nobody = SessionFilter { subscriber: Some(Ipv4Addr::new(10, 0, 0, 2)), ..endpoint };
    assert_eq!(all(&nat, nobody), []);
}

#[test]
fn a_request_looks_at_so_many_lines_and_no_more() {
    let mut nat = nat();
    for port in 1..=5_000 {
        send(&mut nat, inside(1, 7), SocketAddrV4::new(*REMOTE.ip(), port));
    }
    let filter = SessionFilter { subscriber: Some(Ipv4Addr::new(10, 9, 9, 9)), ..SessionFilter::default() };
    let pages = pages(&nat, filter, PAGE);
    assert!(pages.iter().all(|page| page.sessions.is_empty()));
    assert_eq!(pages.iter().map(|page| page.next).collect::<Vec<_>>(), [Some(LINES), Some(2 * LINES), None]);
    // What somebody makes up leads nowhere.
    let beyond = sessions(&nat, &Sessions { from: u32::MAX, limit: 1, filter: Default::default() }, NOW);
    assert_eq!(beyond, SessionPage { sessions: vec![], next: None });
}

#[test]
fn a_session_and_a_subscriber_are_shown_as_documented() {
    let mut nat = nat();
    send(&mut nat, inside(1, 4000), REMOTE);
    let session = all(&nat, SessionFilter::default())[0];
    let page = subscribers(&nat, &Subscribers { from: 0, limit: 10, subscriber: None });
    let [subscriber] = &page.subscribers[..] else { panic!("{page:?}") };
    let (first, last) = subscriber.blocks[0];
    assert!(last - first == 511 && (first..=last).contains(&session.outside.port()));
    assert_eq!(
        json!(session),
        json!({"protocol": "udp", "inside": "10.0.0.1:4000", "outside": format!("203.0.113.1:{}", session.outside.port()),
            "remote": "198.51.100.9:53", "vlans": [], "state": "open", "idle_s": 0.0, "packets_up": 1, "bytes_up": 66,
            "packets_down": 0, "bytes_down": 0})
    );
    assert_eq!(
        json!(subscriber),
        json!({"address": "10.0.0.1", "vlans": [], "outside": "203.0.113.1", "sessions": 1, "blocks": [[first, last]]})
    );
    let later =
        sessions(&nat, &Sessions { from: 0, limit: 1, filter: Default::default() }, NOW + 7_000_000_000);
    assert!((later.sessions[0].idle_s - 7.0).abs() < 0.003, "{later:?}");
}

#[test]
fn a_mapping_that_was_asked_for_has_no_remote_and_a_subscriber_without_blocks_no_address() {
    let mut nat = nat();
    let mapped = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).to_bits(), 80);
    nat.map(&MappingRequest::new(mapped, 6, 100 << 12 | 7, u64::MAX), NOW).expect("a mapping");
    nat.set_hops(Ipv4Addr::new(10, 0, 0, 2), 100 << 12, 1, 2, NOW).expect("a subscriber");
    let [session] = all(&nat, SessionFilter::default())[..] else { panic!("not one") };
    assert_eq!((session.state, session.remote, session.protocol), ("mapping", None, "tcp"));
    assert_eq!(session.vlans.ids(), [100, 7]);
    let ask = |subscriber| subscribers(&nat, &Subscribers { from: 0, limit: 10, subscriber }).subscribers;
    assert_eq!(ask(None).len(), 2);
    let found = ask(Some(Ipv4Addr::new(10, 0, 0, 2)));
    let [waiting] = &found[..] else { panic!("not one") };
    assert_eq!((waiting.outside, &waiting.blocks, waiting.vlans.ids()), (None, &vec![], &[100][..]));
}

#[test]
fn the_status_counts() {
    let mut nat = nat();
    for port in 1..=10 {
        send(&mut nat, inside(1, port), REMOTE);
        send(&mut nat, inside(1, port), REMOTE);
    }
    let status = status(&nat, TrackerParts::default());
    let memory_bytes = nat.memory().total();
    assert_eq!(
        json!(status),
        json!({"sessions": 10, "most_sessions": 8192, "subscribers": 1, "most_subscribers": 64, "addresses": 1,
            "blocks": 126, "blocks_free": 125, "forwarded_up": 20, "forwarded_down": 0, "slow": 10, "drops": {},
            "pcp": {}, "memory_bytes": memory_bytes, "log_lost": 0, "log_suppressed": 0, "restored": null})
    );
}

/// Nothing but a NAT that is asked.
struct Tracker(Nat);

impl Element for Tracker {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: KIND, takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = answer(&self.0, TrackerParts::default(), mail, now);
    }
}

struct Sink;

impl Element for Sink {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "sink", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.consume(batch);
    }
}

#[test]
fn an_element_at_work_answers() {
    const PATIENCE: Duration = Duration::from_secs(20);
    struct Nonsense;
    impl Request for Nonsense {
        type Reply = ();
    }
    let mut nat = nat();
    send(&mut nat, inside(1, 7), REMOTE);
    let eal = Eal::start(&EalOptions::default()).expect("DPDK starts without huge pages");
    let mut graph = Graph::new();
    let (tracker, sink) = (graph.add("nat44", Tracker(nat)), graph.add("sink", Sink));
    graph.connect(tracker, sink);
    let engine = Engine::start(eal, graph, &Placement::single(None), &Options::default()).expect("it runs");
    let view = engine.view();
    let asked = Sessions { from: 0, limit: 5, filter: SessionFilter::default() };
    let page = view.request("nat44", asked, PATIENCE).expect("a page");
    assert_eq!((page.sessions.len(), page.next), (1, None));
    let asked = Subscribers { from: 0, limit: 5, subscriber: None };
    assert_eq!(view.request("nat44", asked, PATIENCE).expect("a page").subscribers.len(), 1);
    assert_eq!(view.request("nat44", Status, PATIENCE).expect("numbers").sessions, 1);
    let why = view.request("nat44", Nonsense, PATIENCE).expect_err("no such request");
    assert_eq!(why, ControlError::NotUnderstood("nat44".into()));
}

#[test]
fn what_is_used_of_an_address_is_told() {
    let mut nat = nat();
    send(&mut nat, inside(1, 5), REMOTE);
    send(&mut nat, inside(1, 6), REMOTE);
    send(&mut nat, inside(2, 5), REMOTE);
    let page = pools(&nat, Pools { from: 0, limit: PAGE }, NOW);
    let [pool] = &page.pools[..] else { panic!("one address: {page:?}") };
    assert_eq!((pool.address, pool.ports, page.next), (Ipv4Addr::new(203, 0, 113, 1), (1024, 65_535), None));
    assert_eq!((pool.blocks, pool.blocks_free, pool.subscribers), (126, 124, 2));
    assert_eq!(pool.used, ByProtocol { tcp: 0, udp: 3, icmp: 0 });
    assert_eq!(pool.resting, ByProtocol { tcp: 0, udp: 0, icmp: 0 });
}
