//! Port forwards to subscribers that have not sent anything: they are asked for by ARP, in their VLAN, and what waited for that reaches them.

use super::*;
use packet::ethernet::Tags;

const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

fn is_reached(name: &str, more: &Value) {
    let mut graph = graph(name, "203.0.113.16/30", more);
    graph["elements"]["in-host"]["on_link"] = json!(["10.0.0.0/24"]);
    let forward = |outside: &str, inside: &str, vlan: &[u16]| json!({"protocol": "udp", "outside": outside, "inside": inside, "vlan": vlan});
    graph["elements"]["conntrack"]["forwards"] = json!([
        forward("203.0.113.16:8080", "10.0.0.7:80", &[]),
        forward("203.0.113.17:8080", "10.0.0.7:80", &[7, 9]),
    ]);
    let run = start(&graph);
    let (mut near, mut far) = (End::new(&format!("{name}-in")), End::new(&format!("{name}-out")));
    be_router(&mut far);
    far.ignores = Box::new(|frame| frame[12..14] != [8, 0]);
    let (ip, mac) = subscriber(7);
    for (last, vlans) in [(16, &[][..]), (17, &[7, 9])] {
        let tags = Tags::vlans(vlans).unwrap();
        let l3 = 14 + tags.bytes().len();
        let to = (SocketAddr::from((Ipv4Addr::new(203, 0, 113, last), 8080)), OUTSIDE);
        let sent = |number| datagram((SERVER, ROUTER.1), 7_000, to, number);
        // The latest is what waits.
        far.send(&[sent(1), sent(2)]);
        let asked = near.take(1).remove(0);
        let question = Arp::parse(&asked).unwrap();
        assert_eq!((&asked[..6], question.operation), (&[0xff; 6][..], Operation::Request));
        assert_eq!((question.sender, question.sender_mac, question.target), (BOX, INSIDE, ip));
        assert_eq!(Tags::of(&asked), tags);
        // It is asked for again each second until it has answered.
        near.ignores = Box::new(move |frame| Arp::parse(frame).is_some() && Tags::of(frame) == tags);
        let end = Instant::now() + Duration::from_secs(60);
        let waits = || dropped(&run.observe(), "conntrack").get("awaiting_arp").copied().unwrap_or(0);
        while waits() < u64::from(last - 15) && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(waits(), u64::from(last - 15), "the later one waits in place of the first");
        let mut answer = vec![0; 64];
        question.answer(mac).emit_tagged(&mut answer, &tags).unwrap();
        near.send(&[answer]);
        let waited = near.take(1).remove(0);
        // From now on nothing waits, and its answers go back.
        far.send(&[sent(3)]);
        for (number, frame) in [(2, waited), (3, near.take(1).remove(0))] {
            assert_eq!((&frame[..12], Tags::of(&frame)), (&[mac, INSIDE].concat()[..], tags));
            assert_eq!(ipv4::addresses(&frame, l3).unwrap(), (SERVER, ip));
            assert_eq!(frame[l3 + 28..], sent(number)[42..]);
            assert!(packet::Parsed::of(&frame).unwrap().is_intact(&frame), "checksums");
        }
    }
    assert_eq!(run.ended(), None);
    let (view, _) = run.stop();
    assert_eq!(dropped(&view, "conntrack"), BTreeMap::from([("awaiting_arp".into(), 2)]));
    assert!(dropped(&view, "in-host").is_empty());
}

#[test]
fn who_never_sent_anything_is_reached() {
    is_reached("nat-silent", &json!({}));
}

#[test]
fn each_worker_has_its_own_subscribers_asked_for() {
    let replicas = json!({"count": 2, "affinity": "owner"});
    let more = json!({
        "replicas": {"nat": replicas, "conntrack": replicas},
        "placement": [
            {"elements": ["inside.rx", "outside.rx", "nat#0", "conntrack#0"]},
            {"elements": ["nat#1", "conntrack#1", "in-host"]},
        ],
    });
    is_reached("nat-silents", &more);
}
