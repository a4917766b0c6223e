use crate::event::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn endpoint() -> impl Strategy<Value = Endpoint> {
    any::<(u32, u16)>().prop_map(|(address, port)| Endpoint { address: Ipv4Addr::from_bits(address), port })
}

fn tags() -> impl Strategy<Value = Tags> {
    prop_oneof![
        Just(Tags::default()),
        (1..4095u16).prop_map(|outer| Tags { outer, inner: 0 }),
        (1..4095u16, 1..4095u16).prop_map(|(outer, inner)| Tags { outer, inner }),
    ]
}

/// Any event.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let who = || (endpoint(), tags(), endpoint(), endpoint());
    (any::<u64>(), 0..14u8, who(), any::<(u8, u32, [u64; 4])>()).prop_map(|(at_ms, kind, who, rest)| {
        let ((inside, tags, outside, remote), (protocol, limit, count)) = (who, rest);
        let volume =
            Volume { packets_up: count[0], bytes_up: count[1], packets_down: count[2], bytes_down: count[3] };
        let session = Session { inside, tags, outside, remote, protocol };
        let mapping = Mapping { inside, tags, outside, protocol };
        let (first, last) = (inside.port, outside.port);
        let block = Block { inside: inside.address, tags, outside: outside.address, first, last };
        let what = match kind {
            0 => EventKind::SessionCreated(session),
            1 => EventKind::SessionDeleted(session, volume),
            2 => EventKind::MappingCreated(mapping),
            3 => EventKind::MappingDeleted(mapping),
            4 => EventKind::BlockAllocated(block),
            5 => EventKind::BlockReleased(block),
            6 => EventKind::AddressesExhausted { pool: limit },
            7 => EventKind::PortsExhausted { outside: outside.address, protocol },
            8 => EventKind::QuotaExceeded(Quota::Sessions { limit }),
            9 => EventKind::QuotaExceeded(Quota::Mappings { limit }),
            10 => EventKind::QuotaExceeded(Quota::Subscribers { limit }),
            11 => EventKind::SessionInterim(session, volume),
            12 => EventKind::QuotaExceeded(Quota::PerSubscriber { limit, inside: inside.address, tags }),
            _ => EventKind::QuotaExceeded(Quota::Fragments { limit, inside: inside.address, tags }),
        };
        Event { at_ms, what }
    })
}

proptest! {
    #[test]
    fn words_keep_the_event(event in event()) {
        prop_assert_eq!(Event::from_words(event.to_words()), Some(event));
    }

    #[test]
    fn any_words_are_an_event_or_none(words in any::<Words>()) {
        let _either = Event::from_words(words);
    }
}
