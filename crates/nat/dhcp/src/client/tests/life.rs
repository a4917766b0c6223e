//! RFC 2131 figure 5, transition by transition.

use super::*;

fn seconds(of: u64) -> f64 {
    of as f64 / SECOND as f64
}

#[test]
fn from_discover_to_bound() {
    let mut clients = clients();
    assert_eq!(clients.state(MAC), Some(State::Init));
    clients.advance(0);
    let discover = one(&mut clients);
    assert_eq!((discover.kind(), discover.is_broadcast()), (MessageType::Discover, true));
    assert_eq!((discover.source, discover.wanted(), discover.server()), (Ipv4Addr::UNSPECIFIED, None, None));
    assert_eq!(discover.message.flags(), Flags::default().set_broadcast());
    assert_eq!(clients.state(MAC), Some(State::Selecting));

    let offer = Says::to(&discover, MessageType::Offer);
    assert_eq!(clients.receive(&offer.frame(), 3 * SECOND), Verdict::Accepted);
    let request = one(&mut clients);
    assert_eq!((request.kind(), request.is_broadcast()), (MessageType::Request, true));
    assert_eq!((request.wanted(), request.server()), (Some(ADDRESS), Some(SERVER)));
    assert_eq!((request.message.xid(), request.message.ciaddr()), (offer.xid, Ipv4Addr::UNSPECIFIED));
    assert_eq!(request.message.secs(), discover.message.secs(), "RFC 2131 section 3.1, step 3");
    assert_eq!((clients.state(MAC), clients.lease(MAC)), (Some(State::Requesting), None));

    let ack = Says::to(&request, MessageType::Ack);
    assert_eq!(clients.receive(&ack.frame(), 4 * SECOND), Verdict::Accepted);
    let Some(Event::Acquired { mac: MAC, lease }) = clients.event() else { panic!("not acquired") };
    assert_eq!((lease.address, lease.server, lease.seconds), (ADDRESS, SERVER, Some(3600)));
    assert_eq!((clients.state(MAC), clients.lease(MAC)), (Some(State::Bound), Some(&lease)));
    assert_eq!(clients.holder(ADDRESS), Some(MAC));
    assert_eq!((clients.event(), clients.transmit()), (None, None));
}

#[test]
fn t1_t2_and_the_end() {
    let mut clients = clients();
    bind(&mut clients, 0, |_| ()).unwrap();
    let now = wait(&mut clients);
    assert!((0.95 * 1800.0..=1800.0).contains(&seconds(now)), "T1 at {}", seconds(now));
    let renew = one(&mut clients);
    assert_eq!((renew.kind(), renew.to, renew.destination), (MessageType::Request, GATE, SERVER));
    assert_eq!((renew.source, renew.message.ciaddr()), (ADDRESS, ADDRESS));
    assert_eq!((renew.wanted(), renew.server()), (None, None));
    assert_eq!(renew.message.flags(), Flags::default());
    assert_eq!(clients.state(MAC), Some(State::Renewing));

    assert_eq!(clients.receive(&Says::to(&renew, MessageType::Ack).frame(), now + SECOND), Verdict::Accepted);
    assert!(matches!(clients.event(), Some(Event::Renewed { mac: MAC, .. })));
    let renewed = now;

    // Nobody answers now.
    let (mut times, mut states) = (Vec::new(), Vec::new());
    let lost = loop {
        let now = wait(&mut clients);
        states.push(clients.state(MAC).unwrap());
        times.push(seconds(now - renewed));
        if let Some(event) = clients.event() {
            assert_eq!(event, Event::Lost { mac: MAC, address: ADDRESS, why: LossReason::Expired });
            break now;
        }
        let sent = one(&mut clients);
        assert_eq!(sent.message.ciaddr(), ADDRESS);
        assert_eq!(sent.is_broadcast(), clients.state(MAC) == Some(State::Rebinding));
    };
    assert_eq!(lost - renewed, 3600 * SECOND);
    let rebinding = times[states.iter().position(|state| *state == State::Rebinding).unwrap()];
    assert!((0.95 * 3150.0 - 90.0..=3150.0).contains(&rebinding), "T2 at {rebinding}");
    assert!(
        times.windows(2).filter(|gap| gap[1] < rebinding).all(|gap| gap[1] - gap[0] >= 60.0),
        "{times:?}"
    );
    assert!(states.len() > 6, "{states:?}");
    // It would like the same address.
    let discover = one(&mut clients);
    assert_eq!((discover.kind(), discover.wanted()), (MessageType::Discover, Some(ADDRESS)));
    assert_eq!((clients.lease(MAC), clients.holder(ADDRESS)), (None, None));
}

#[test]
fn another_server_may_rebind_but_not_renew() {
    let mut clients = clients();
    bind(&mut clients, 0, |_| ()).unwrap();
    wait(&mut clients);
    let renew = one(&mut clients);
    let other = Says { server: OTHER, ..Says::to(&renew, MessageType::Ack) };
    let now = clients.next_due().unwrap() - 1;
    assert_eq!(clients.receive(&other.frame(), now), Verdict::Ignored(IgnoreReason::OtherServer));
    let nak = Says { server: OTHER, ..Says::to(&renew, MessageType::Nak) };
    assert_eq!(clients.receive(&nak.frame(), now), Verdict::Ignored(IgnoreReason::OtherServer));
    let rebind = loop {
        wait(&mut clients);
        let sent = one(&mut clients);
        if clients.state(MAC) == Some(State::Rebinding) {
            break sent;
        }
    };
    assert_ne!(rebind.message.xid(), renew.message.xid());
    let other = Says { server: OTHER, ..Says::to(&rebind, MessageType::Ack) };
    assert_eq!(clients.receive(&other.frame(), clients.next_due().unwrap() - 1), Verdict::Accepted);
    assert!(matches!(clients.event(), Some(Event::Renewed { lease, .. }) if lease.server == OTHER));
}

#[test]
fn t1_and_t2_as_the_server_says_unless_absurd() {
    for (t1, t2, wakes) in [
        (600, 1200, 600.0),
        (0, 0, 1800.0),
        (1, 2, 1800.0),
        (1200, 600, 1800.0),
        (600, 3600, 1800.0),
        (u32::MAX, u32::MAX, 1800.0),
        (60, 61, 60.0),
        (59, 61, 1800.0),
    ] {
        let mut clients = clients();
        bind(&mut clients, 0, |says| says.more = vec![DhcpOption::Renewal(t1), DhcpOption::Rebinding(t2)]);
        let due = seconds(clients.next_due().unwrap());
        assert!((0.95 * wakes..=wakes).contains(&due), "{t1} {t2}: {due}");
    }
    let mut clients = clients();
    let event = bind(&mut clients, 0, |says| says.lease = u32::MAX);
    assert!(matches!(event, Some(Event::Acquired { lease: Terms { seconds: None, .. }, .. })));
    assert_eq!(clients.next_due(), None);
    clients.advance(u64::MAX);
    assert_eq!((clients.state(MAC), clients.transmit()), (Some(State::Bound), None));
}

#[test]
fn discovers_back_off_from_4_to_64_s_a_second_more_or_less() {
    for seed in 0..20 {
        let mut clients = Clients::new(config(), seed);
        clients.add(MAC, 0).unwrap();
        let (mut before, mut xid) = (wait(&mut clients), None);
        for base in [4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0] {
            let sent = one(&mut clients);
            assert_eq!(sent.kind(), MessageType::Discover);
            assert_eq!(*xid.get_or_insert(sent.message.xid()), sent.message.xid(), "one exchange");
            assert_eq!(u64::from(sent.message.secs()), before / SECOND);
            let now = wait(&mut clients);
            assert!((base - 1.0..=base + 1.0).contains(&seconds(now - before)));
            before = now;
        }
    }
}

#[test]
fn an_offer_that_is_not_confirmed_is_asked_for_four_times() {
    let mut clients = clients();
    wait(&mut clients);
    assert_eq!(one(&mut clients).message.secs(), 0);
    // The second time, a few seconds later.
    let now = wait(&mut clients);
    let discover = one(&mut clients);
    assert_eq!(u64::from(discover.message.secs()), now / SECOND);
    clients.receive(&Says::to(&discover, MessageType::Offer).frame(), now + 2 * SECOND);
    for _ in 0..4 {
        let sent = one(&mut clients);
        assert_eq!((sent.kind(), sent.message.xid()), (MessageType::Request, discover.message.xid()));
        assert_eq!(sent.message.secs(), discover.message.secs());
        wait(&mut clients);
    }
    let again = one(&mut clients);
    assert_eq!(again.kind(), MessageType::Discover);
    assert_ne!(again.message.xid(), discover.message.xid());
    // An offer of the exchange before.
    let late = Says::to(&discover, MessageType::Offer);
    assert_eq!(clients.receive(&late.frame(), 0), Verdict::Ignored(IgnoreReason::OtherExchange));
}

#[test]
fn a_known_client_asks_for_what_it_had() {
    let mut before = clients();
    bind(&mut before, 0, |_| ()).unwrap();
    let kept = serde_json::to_string(&before.known_addresses().collect::<Vec<_>>()).unwrap();
    assert_eq!(kept, r#"[{"mac":"02:00:00:00:00:01","address":"198.51.100.77","bound":true}]"#);
    let known: Vec<KnownAddress> = serde_json::from_str(&kept).unwrap();

    let mut clients = Clients::new(config(), 8);
    clients.remember(known.clone());
    clients.add(MAC, 0).unwrap();
    assert_eq!(clients.state(MAC), Some(State::InitReboot));
    clients.advance(0);
    let request = one(&mut clients);
    assert_eq!((request.kind(), request.is_broadcast()), (MessageType::Request, true));
    assert_eq!((request.wanted(), request.server()), (Some(ADDRESS), None));
    assert_eq!(request.message.ciaddr(), Ipv4Addr::UNSPECIFIED);
    assert_eq!(clients.state(MAC), Some(State::Rebooting));
    let other = Says { address: OTHER, ..Says::to(&request, MessageType::Ack) };
    assert_eq!(clients.receive(&other.frame(), 0), Verdict::Ignored(IgnoreReason::OtherAddress));
    assert_eq!(clients.receive(&Says::to(&request, MessageType::Ack).frame(), 0), Verdict::Accepted);
    assert!(matches!(clients.event(), Some(Event::Acquired { lease, .. }) if lease.address == ADDRESS));

    // A server that rejects the request: the client asks for any address at once.
    let mut clients = Clients::new(config(), 9);
    clients.remember(known.clone());
    clients.add(MAC, 0).unwrap();
    clients.advance(0);
    let request = one(&mut clients);
    assert_eq!(clients.receive(&Says::to(&request, MessageType::Nak).frame(), 0), Verdict::Accepted);
    assert_eq!(clients.event(), Some(Event::Refused { mac: MAC, address: ADDRESS }));
    clients.advance(0);
    let discover = one(&mut clients);
    assert_eq!((discover.kind(), discover.wanted()), (MessageType::Discover, None));
    assert_eq!(clients.known_addresses().count(), 0);

    // A server that says nothing: it asks for any address, but would like the same.
    let mut clients = Clients::new(config(), 10);
    clients.remember(known);
    clients.add(MAC, 0).unwrap();
    wait(&mut clients);
    one(&mut clients);
    wait(&mut clients);
    assert_eq!(one(&mut clients).kind(), MessageType::Request);
    let now = wait(&mut clients);
    assert!(seconds(now) <= 14.0);
    let discover = one(&mut clients);
    assert_eq!((discover.kind(), discover.wanted()), (MessageType::Discover, Some(ADDRESS)));
}

#[test]
fn a_nak_ends_a_lease() {
    let mut clients = clients();
    bind(&mut clients, 0, |_| ()).unwrap();
    let now = wait(&mut clients);
    let renew = one(&mut clients);
    assert_eq!(clients.receive(&Says::to(&renew, MessageType::Nak).frame(), now), Verdict::Accepted);
    assert_eq!(clients.event(), Some(Event::Lost { mac: MAC, address: ADDRESS, why: LossReason::Refused }));
    assert_eq!(
        (clients.event(), clients.known_addresses().count(), clients.holder(ADDRESS)),
        (None, 0, None)
    );
    wait(&mut clients);
    assert_eq!(one(&mut clients).wanted(), None);
}

#[test]
fn who_is_refused_each_time_asks_less_and_less() {
    let (mut clients, mut before) = (clients(), 0);
    for (times, least) in [(0, 0.0), (1, 3.0), (2, 7.0), (3, 15.0), (4, 31.0), (5, 63.0), (6, 63.0)] {
        let now = wait(&mut clients);
        assert!(seconds(now - before) >= least, "{times}");
        before = now;
        let discover = one(&mut clients);
        clients.receive(&Says::to(&discover, MessageType::Offer).frame(), now);
        let request = one(&mut clients);
        assert_eq!(clients.receive(&Says::to(&request, MessageType::Nak).frame(), now), Verdict::Accepted);
        assert_eq!(clients.event(), Some(Event::Refused { mac: MAC, address: ADDRESS }));
    }
}

#[test]
fn a_conflict_is_declined() {
    let mut clients = clients();
    assert!(!clients.conflict(MAC, 0));
    bind(&mut clients, 0, |_| ()).unwrap();
    assert!(clients.conflict(MAC, SECOND));
    assert_eq!(clients.event(), Some(Event::Lost { mac: MAC, address: ADDRESS, why: LossReason::Conflict }));
    let decline = one(&mut clients);
    assert_eq!((decline.kind(), decline.is_broadcast()), (MessageType::Decline, true));
    assert_eq!((decline.wanted(), decline.server()), (Some(ADDRESS), Some(SERVER)));
    assert_eq!((decline.message.ciaddr(), decline.source), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED));
    assert!(!decline.message.opts().contains(OptionCode::ParameterRequestList));
    assert!(wait(&mut clients) >= 11 * SECOND);
    let discover = one(&mut clients);
    assert_eq!((discover.kind(), discover.wanted()), (MessageType::Discover, None));
}

#[test]
fn who_declines_each_time_asks_less_and_less() {
    let (mut clients, mut now) = (clients(), 0);
    for least in [10.0_f64, 10.0, 15.0, 31.0, 63.0, 63.0] {
        bind(&mut clients, now, |_| ()).unwrap();
        assert!(clients.conflict(MAC, now));
        assert_eq!(one(&mut clients).kind(), MessageType::Decline);
        assert!(matches!(clients.event(), Some(Event::Lost { why: LossReason::Conflict, .. })));
        let due = clients.next_due().unwrap();
        assert!(
            (least..=least.max(8.0) + 2.0).contains(&seconds(due - now)),
            "{least}: {}",
            seconds(due - now)
        );
        now = due;
    }
    // One that it had until it was to be renewed makes good for those before.
    bind(&mut clients, now, |_| ()).unwrap();
    let now = wait(&mut clients);
    one(&mut clients);
    assert!(clients.conflict(MAC, now));
    assert!(seconds(clients.next_due().unwrap() - now) <= 10.0);
}

#[test]
fn what_no_client_may_have_is_neither_taken_nor_declined() {
    let never = vec![Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 255, 255, 255), OTHER..=OTHER];
    for wrong in [Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(10, 255, 255, 255), OTHER] {
        let mut clients = Clients::new(Config { never: never.clone(), ..config() }, 7);
        clients.remember([KnownAddress { mac: MAC, address: wrong, bound: true }]);
        clients.add(MAC, 0).unwrap();
        clients.advance(0);
        let discover = one(&mut clients);
        assert_eq!((discover.kind(), discover.wanted()), (MessageType::Discover, None), "it had {wrong}");
        // The wrong server is the quicker one; it says so twice.
        let rogue = Ipv4Addr::new(198, 51, 100, 66);
        let offer =
            Says { address: wrong, server: rogue, more: vec![], ..Says::to(&discover, MessageType::Offer) };
        for _ in 0..2 {
            assert_eq!(clients.receive(&offer.frame(), 0), Verdict::Ignored(IgnoreReason::BadAddress));
            let unfit = Event::Unfit { mac: MAC, address: wrong, server: rogue };
            assert_eq!((clients.event(), clients.transmit()), (Some(unfit), None));
        }
        assert_eq!(clients.receive(&Says::to(&discover, MessageType::Offer).frame(), 0), Verdict::Accepted);
        let request = one(&mut clients);
        assert_eq!((request.wanted(), request.server()), (Some(ADDRESS), Some(SERVER)));
        assert_eq!(clients.receive(&Says::to(&request, MessageType::Ack).frame(), 0), Verdict::Accepted);
        assert_eq!(clients.holder(ADDRESS), Some(MAC));
    }
}

#[test]
fn a_release_gives_back_and_is_remembered() {
    let mut clients = clients();
    bind(&mut clients, 0, |_| ()).unwrap();
    assert!(clients.release(MAC, SECOND));
    let release = one(&mut clients);
    assert_eq!((release.kind(), release.to, release.destination), (MessageType::Release, GATE, SERVER));
    assert_eq!((release.source, release.message.ciaddr()), (ADDRESS, ADDRESS));
    assert_eq!((release.wanted(), release.server()), (None, Some(SERVER)));
    assert_eq!(clients.event(), Some(Event::Lost { mac: MAC, address: ADDRESS, why: LossReason::Released }));
    assert_eq!((clients.len(), clients.next_due(), clients.holder(ADDRESS)), (0, None, None));
    assert!(!clients.release(MAC, SECOND));
    // It comes back, and would like the same.
    clients.add(MAC, 2 * SECOND).unwrap();
    wait(&mut clients);
    let discover = one(&mut clients);
    assert_eq!((discover.kind(), discover.wanted()), (MessageType::Discover, Some(ADDRESS)));
    // Without an address it just goes.
    assert!(clients.release(MAC, 3 * SECOND));
    assert_eq!((clients.transmit(), clients.event()), (None, None));
    clients.forget(MAC);
    assert_eq!(clients.known_addresses().count(), 0);
}

#[test]
fn who_can_be_a_client() {
    let mut clients = Clients::new(Config { most: 1, ..config() }, 7);
    assert!(matches!(clients.add([1, 0, 0, 0, 0, 1], 0), Err(AddError::NotOne(_))));
    assert!(matches!(clients.add([0; 6], 0), Err(AddError::NotOne(_))));
    clients.add(MAC, 0).unwrap();
    assert_eq!(clients.add(MAC, 0), Err(AddError::Exists("02:00:00:00:00:01".into())));
    assert_eq!(clients.add(GATE, 0), Err(AddError::Full(1)));
}

#[test]
fn tags_and_lease_times_are_as_configured() {
    let tags = packet::ethernet::Tags::vlans(&[100, 7]).unwrap();
    let mut clients = Clients::new(Config { tags, ask_lease: Some(7200), ..config() }, 7);
    clients.add(MAC, 0).unwrap();
    clients.advance(0);
    let frame = clients.transmit().unwrap();
    assert!(packet::ethernet::Tags::of(&frame).same_vlans(&tags));
    let sent = Sent::read(&frame);
    assert_eq!(
        sent.message.opts().get(OptionCode::AddressLeaseTime),
        Some(&DhcpOption::AddressLeaseTime(7200))
    );
    let offer = Says::to(&sent, MessageType::Offer).frame();
    assert_eq!(clients.receive(&offer, 0), Verdict::NotOurs, "without tags");
    let tagged = [&offer[..12], tags_bytes(&frame), &offer[12..]].concat();
    assert_eq!(clients.receive(&tagged, 0), Verdict::Accepted);
}

fn tags_bytes(frame: &[u8]) -> &[u8] {
    &frame[12..20]
}
