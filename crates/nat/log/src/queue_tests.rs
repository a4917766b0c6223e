use crate::event::{Event, EventKind, Quota};
use crate::queue::queue;
use std::net::Ipv4Addr;

fn exhausted(at_ms: u64) -> Event {
    Event { at_ms, what: EventKind::AddressesExhausted { pool: 7 } }
}

fn block(first: u16) -> Event {
    let (inside, outside) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
    let tags = Default::default();
    let block = crate::Block { inside, tags, outside, first, last: first | 63 };
    Event { at_ms: 1, what: EventKind::BlockAllocated(block) }
}

#[test]
fn a_full_queue_counts_and_keeps_the_oldest() {
    let (mut producer, mut consumer) = queue(4);
    let taken: Vec<bool> = (0..6).map(|first| producer.push(block(first))).collect();
    assert_eq!(taken, [true, true, true, true, false, false]);
    assert_eq!((producer.lost(), consumer.lost()), (2, 2));
    assert_eq!(consumer.pop(), Some(block(0)));
    assert!(producer.push(block(9)));
    let rest: Vec<Event> = std::iter::from_fn(|| consumer.pop()).collect();
    assert_eq!(rest, [block(1), block(2), block(3), block(9)]);
    assert!(!consumer.is_over());
    drop(producer);
    assert!(consumer.is_over());
}

#[test]
fn refusals_are_limited_by_kind_and_second() {
    let (mut producer, consumer) = queue(64);
    let quota = |at_ms| Event { at_ms, what: EventKind::QuotaExceeded(Quota::Sessions { limit: 1 }) };
    let passed = (0..100).filter(|_| producer.push(exhausted(5000))).count();
    assert_eq!(passed, 10);
    assert!(producer.push(quota(5000)) && producer.push(exhausted(6000)) && producer.push(block(1)));
    assert_eq!((consumer.suppressed(), consumer.lost()), (90, 0));
}

#[test]
fn events_cross_threads_whole_and_in_order() {
    let (mut producer, mut consumer) = queue(64);
    let events = 200_000u32;
    let reader = std::thread::spawn(move || {
        let (mut got, mut next) = (0u64, 0);
        while !consumer.is_over() {
            let Some(event) = consumer.pop() else {
                std::thread::yield_now();
                continue;
            };
            let EventKind::SessionDeleted(session, volume) = event.what else { panic!("{event:?}") };
            let number = session.inside.address.to_bits();
            assert!(number >= next);
            assert_eq!((u64::from(number), volume.bytes_down), (event.at_ms, u64::from(number)));
            next = number + 1;
            got += 1;
        }
        (got, consumer.lost())
    });
    for number in 0..events {
        let at = |port| crate::Endpoint { address: Ipv4Addr::from_bits(number), port };
        let session = crate::Session {
            inside: at(1),
            tags: Default::default(),
            outside: at(2),
            remote: at(3),
            protocol: 6,
        };
        let volume = crate::Volume { bytes_down: number.into(), ..Default::default() };
        producer.push(Event { at_ms: number.into(), what: EventKind::SessionDeleted(session, volume) });
    }
    drop(producer);
    let (got, lost) = reader.join().expect("the reader");
    assert_eq!(got + lost, u64::from(events));
}
