//! Rogue servers and noise.

use super::*;
use proptest::prelude::*;

/// What becomes of an offer with something wrong with it.
fn offered(change: impl Fn(&mut Says)) -> Verdict {
    let mut clients = clients();
    clients.advance(0);
    let discover = one(&mut clients);
    let mut offer = Says::to(&discover, MessageType::Offer);
    change(&mut offer);
    let verdict = clients.receive(&offer.frame(), 0);
    let taken = verdict == Verdict::Accepted;
    assert_eq!(clients.transmit().is_some(), taken);
    assert_eq!(clients.state(MAC), Some(if taken { State::Requesting } else { State::Selecting }));
    if let Verdict::Ignored(why) = verdict {
        assert_eq!(clients.ignored().nth(why as usize), Some((IgnoreReason::NAMES[why as usize], 1)));
    }
    verdict
}

#[test]
fn addresses_that_no_host_can_have_are_refused() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "198.51.100.0",
        "198.51.100.255",
        "198.51.100.1",
    ] {
        let address = address.parse().unwrap();
        let verdict = offered(|says| says.address = address);
        assert_eq!(verdict, Verdict::Ignored(IgnoreReason::BadAddress), "{address}");
    }
    let with = |address: &str, mask: &str| {
        let (address, mask) = (address.parse().unwrap(), mask.parse().unwrap());
        offered(|says| {
            says.address = address;
            says.more = vec![DhcpOption::SubnetMask(mask)];
        })
    };
    assert_eq!(with("198.51.100.191", "255.255.255.192"), Verdict::Ignored(IgnoreReason::BadAddress));
    assert_eq!(with("198.51.100.128", "255.255.255.192"), Verdict::Ignored(IgnoreReason::BadAddress));
    // Networks of two and of one have no broadcast address (RFC 3021); a mask with holes says nothing.
    for mask in ["255.255.255.254", "255.255.255.255", "255.0.255.0", "0.0.0.0"] {
        assert_eq!(with("198.51.100.255", mask), Verdict::Accepted, "{mask}");
    }
    let router = offered(|says| says.more = vec![DhcpOption::Router(vec![ADDRESS])]);
    assert_eq!(router, Verdict::Ignored(IgnoreReason::BadAddress));
}

#[test]
fn lease_times_have_a_limit() {
    for seconds in [0, 1, 59] {
        assert_eq!(offered(|says| says.lease = seconds), Verdict::Ignored(IgnoreReason::ShortLease));
    }
    for seconds in [60, u32::MAX - 1, u32::MAX] {
        assert_eq!(offered(|says| says.lease = seconds), Verdict::Accepted);
    }
    let mut clients = clients();
    bind(&mut clients, u64::MAX / 2, |says| says.lease = u32::MAX - 1).unwrap();
    assert!(clients.next_due().unwrap() > u64::MAX / 2);
}

#[test]
fn what_is_not_for_this_exchange_is_ignored() {
    assert_eq!(offered(|says| says.xid ^= 1), Verdict::Ignored(IgnoreReason::OtherExchange));
    assert_eq!(offered(|says| says.mac[5] ^= 2), Verdict::NotOurs);
    assert_eq!(offered(|says| says.kind = MessageType::Ack), Verdict::Ignored(IgnoreReason::Unexpected));
    assert_eq!(offered(|says| says.kind = MessageType::Nak), Verdict::Ignored(IgnoreReason::Unexpected));
    assert_eq!(offered(|says| says.kind = MessageType::Discover), Verdict::Ignored(IgnoreReason::Malformed));
    for server in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
        assert_eq!(offered(|says| says.server = server), Verdict::Ignored(IgnoreReason::Malformed));
    }
}

#[test]
fn a_frame_must_be_for_the_client_and_from_a_host() {
    let mut clients = clients();
    clients.advance(0);
    let offer = Says::to(&one(&mut clients), MessageType::Offer).payload();
    assert_eq!(clients.receive(&in_frame([2, 0, 0, 0, 0, 9], &offer), 0), Verdict::NotOurs);
    let mut frame = in_frame(MAC, &offer);
    frame[6] |= 1;
    assert_eq!(clients.receive(&frame, 0), Verdict::NotOurs);
    let mut frame = in_frame(MAC, &offer);
    frame[37] = 69;
    assert_eq!(clients.receive(&frame, 0), Verdict::NotOurs);
    assert_eq!(clients.receive(&in_frame(BROADCAST, &offer), 0), Verdict::Accepted);
}

#[test]
fn what_was_not_asked_for_changes_nothing_while_bound() {
    let mut clients = clients();
    bind(&mut clients, 0, |_| ()).unwrap();
    let due = clients.next_due();
    for kind in [MessageType::Offer, MessageType::Ack, MessageType::Nak] {
        for xid in [0, 1] {
            let says = Says { kind, xid, mac: MAC, address: OTHER, server: OTHER, lease: 60, more: vec![] };
            assert_eq!(clients.receive(&says.frame(), 0), Verdict::Ignored(IgnoreReason::Unexpected));
        }
    }
    assert_eq!((clients.event(), clients.transmit(), clients.next_due()), (None, None, due));
}

#[test]
fn the_chosen_server_must_give_what_it_offered() {
    let mut clients = clients();
    clients.advance(0);
    let discover = one(&mut clients);
    clients.receive(&Says::to(&discover, MessageType::Offer).frame(), 0);
    let request = one(&mut clients);
    let ack = Says::to(&request, MessageType::Ack);
    let other = Says { server: OTHER, ..ack.clone() };
    assert_eq!(clients.receive(&other.frame(), 0), Verdict::Ignored(IgnoreReason::OtherServer));
    let other = Says { kind: MessageType::Nak, ..other };
    assert_eq!(clients.receive(&other.frame(), 0), Verdict::Ignored(IgnoreReason::OtherServer));
    let other = Says { address: OTHER, ..ack.clone() };
    assert_eq!(clients.receive(&other.frame(), 0), Verdict::Ignored(IgnoreReason::OtherAddress));
    let short = Says { lease: 1, ..ack.clone() };
    assert_eq!(clients.receive(&short.frame(), 0), Verdict::Ignored(IgnoreReason::ShortLease));
    assert_eq!(clients.event(), None);
    assert_eq!(clients.receive(&ack.frame(), 0), Verdict::Accepted);
    assert_eq!(clients.receive(&ack.frame(), 0), Verdict::Ignored(IgnoreReason::Unexpected), "a second time");
}

#[test]
fn fields_that_no_reply_has() {
    let mut clients = clients();
    clients.advance(0);
    let good = Says::to(&one(&mut clients), MessageType::Offer).payload();
    // The operation, hardware type and length, and magic number.
    for (at, byte) in [(0, 1), (1, 6), (2, 5), (2, 255)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(clients.receive(&in_frame(MAC, &bad), 0), Verdict::NotOurs, "{at}");
    }
    let mut bad = good.clone();
    bad[236] ^= 1;
    assert_eq!(clients.receive(&in_frame(MAC, &bad), 0), Verdict::Ignored(IgnoreReason::Malformed));
    let option = |bytes: &[u8]| [&good[..240], bytes, &[255]].concat();
    for options in [
        &[][..],
        &[53, 1, 2],
        &[53, 1],
        &[53, 0],
        &[53, 2, 2, 2],
        &[53, 1, 9, 54, 4, 198, 51, 100, 1],
        &[53, 1, 2, 54, 3, 198, 51, 100],
        &[53, 1, 2, 54, 4, 198, 51, 100, 1, 51, 2, 1, 1],
        &[53, 1, 2, 54, 4, 198, 51, 100, 1],
        &[53, 1, 2, 54, 4, 198, 51, 100, 1, 1, 1, 1],
    ] {
        let verdict = clients.receive(&in_frame(MAC, &option(options)), 0);
        assert_eq!(verdict, Verdict::Ignored(IgnoreReason::Malformed), "{options:?}");
    }
    let least = option(&[53, 1, 2, 54, 4, 198, 51, 100, 1, 51, 4, 0, 0, 14, 16]);
    assert_eq!(clients.receive(&in_frame(MAC, &least), 0), Verdict::Accepted);
}

/// A set in a state that a number says, and a reply that it waits for, if there is one.
fn somewhere(state: u8) -> (Clients, Says) {
    let mut clients = clients();
    if state < 3 {
        clients.advance(0);
        let discover = one(&mut clients);
        let offer = Says::to(&discover, MessageType::Offer);
        if state == 0 {
            return (clients, offer);
        }
        clients.receive(&offer.frame(), 0);
        let ack = Says::to(&one(&mut clients), MessageType::Ack);
        if state == 2 {
            clients.receive(&ack.frame(), 0);
        }
        return (clients, ack);
    }
    bind(&mut clients, 0, |_| ()).unwrap();
    loop {
        wait(&mut clients);
        let sent = one(&mut clients);
        if state == 3 || clients.state(MAC) == Some(State::Rebinding) {
            return (clients, Says::to(&sent, MessageType::Ack));
        }
    }
}

proptest! {
    #[test]
    fn noise_never_panics(
        state in 0..5_u8,
        noise in prop::collection::vec(any::<u8>(), 0..600),
        whole in any::<bool>(),
    ) {
        let (mut clients, _) = somewhere(state);
        clients.receive(&noise, 1);
        let frame = if whole { [&in_frame(MAC, &[])[..34], &noise].concat() } else { in_frame(MAC, &noise) };
        clients.receive(&frame, 1);
    }

    /// A reply with bytes changed and cut off: whatever is taken from it can be.
    #[test]
    fn damaged_replies_are_refused_or_fit(
        state in 0..5_u8,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut clients, says) = somewhere(state);
        while clients.event().is_some() {}
        let had = clients.lease(MAC).copied();
        let mut payload = says.payload();
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        if let Some(cut) = cut {
            payload.truncate(cut.index(payload.len() + 1));
        }
        let now = clients.next_due().unwrap() - 1;
        let verdict = clients.receive(&in_frame(MAC, &payload), now);
        let event = clients.event().filter(|event| !matches!(event, Event::Unfit { .. }));
        if verdict != Verdict::Accepted {
            prop_assert_eq!((event, clients.lease(MAC).copied()), (None, had));
        }
        if let Some(lease) = clients.lease(MAC) {
            prop_assert!(crate::lease::of_a_host(lease.address));
            prop_assert!(lease.seconds.is_none_or(|seconds| seconds >= 60));
            prop_assert_eq!(lease.address, ADDRESS);
        }
        // It goes on, whatever it was told.
        for _ in 0..20 {
            if clients.next_due().is_some() {
                wait(&mut clients);
            }
            while let Some(frame) = clients.transmit() {
                Sent::read(&frame);
            }
        }
    }
}
