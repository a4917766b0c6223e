use super::*;
use crate::event_tests::event;
use crate::{Block, Session, Volume};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const AT: u64 = 1_700_000_000_250;
const INSIDE: Endpoint = Endpoint { address: Ipv4Addr::new(10, 0, 0, 7), port: 40000 };
const OUTSIDE: Endpoint = Endpoint { address: Ipv4Addr::new(192, 0, 2, 1), port: 1024 };
const REMOTE: Endpoint = Endpoint { address: Ipv4Addr::new(198, 51, 100, 9), port: 443 };

fn formatter() -> Formatter {
    Formatter::new(Config { host: "cgn1".into(), ..Config::default() }).expect("a configuration")
}

fn line(what: EventKind) -> String {
    String::from_utf8(formatter().event(&Event { at_ms: AT, what }).to_vec()).expect("UTF-8")
}

#[test]
fn an_event_is_a_line() {
    let tags = Tags { outer: 100, inner: 7 };
    let session = Session { inside: INSIDE, tags, outside: OUTSIDE, remote: REMOTE, protocol: 6 };
    let volume = Volume { packets_up: 3, bytes_up: 180, packets_down: 4, bytes_down: 5000 };
    let block = Block {
        inside: INSIDE.address,
        tags: Tags { outer: 100, inner: 0 },
        outside: OUTSIDE.address,
        first: 1024,
        last: 1535,
    };
    let mapping = Mapping { inside: INSIDE, tags: Tags::default(), outside: OUTSIDE, protocol: 17 };
    let limit = 1000;
    let start = |severity: u8, name: &str| {
        format!(
            "<{}>1 2023-11-14T22:13:20.250Z cgn1 netdyno - {name} [nat@32473 instance=\"1\" ",
            128 + severity
        )
    };
    let endpoints = "in=\"10.0.0.7\" inport=\"40000\" out=\"192.0.2.1\" outport=\"1024\"";
    let flow = format!("proto=\"6\" {endpoints} dst=\"198.51.100.9\" dstport=\"443\"");
    let ports = "in=\"10.0.0.7\" out=\"192.0.2.1\" first=\"1024\" last=\"1535\" vlan=\"100\"";
    let volumes = "pktsup=\"3\" bytesup=\"180\" pktsdown=\"4\" bytesdown=\"5000\"";
    let (inside, untagged) = (INSIDE.address, Tags::default());
    let quota = |name| format!("quota=\"{name}\" limit=\"1000\"");
    for (what, severity, name, data) in [
        (EventKind::SessionCreated(session), 6, "session-create", format!("{flow} vlan=\"100\" cvlan=\"7\"")),
        (
            EventKind::SessionDeleted(session, volume),
            6,
            "session-delete",
            format!("{flow} {volumes} vlan=\"100\" cvlan=\"7\""),
        ),
        (
            EventKind::SessionInterim(session, volume),
            6,
            "session-interim",
            format!("{flow} {volumes} vlan=\"100\" cvlan=\"7\""),
        ),
        (EventKind::MappingCreated(mapping), 6, "mapping-create", format!("proto=\"17\" {endpoints}")),
        (EventKind::MappingDeleted(mapping), 6, "mapping-delete", format!("proto=\"17\" {endpoints}")),
        (EventKind::BlockAllocated(block), 6, "block-allocate", ports.into()),
        (EventKind::BlockReleased(block), 6, "block-release", ports.into()),
        (EventKind::AddressesExhausted { pool: 3 }, 4, "addresses-exhausted", "pool=\"3\"".into()),
        (
            EventKind::PortsExhausted { outside: OUTSIDE.address, protocol: 17 },
            4,
            "ports-exhausted",
            "out=\"192.0.2.1\" proto=\"17\"".into(),
        ),
        (EventKind::QuotaExceeded(Quota::Sessions { limit }), 4, "quota-exceeded", quota("sessions")),
        (EventKind::QuotaExceeded(Quota::Mappings { limit }), 4, "quota-exceeded", quota("mappings")),
        (EventKind::QuotaExceeded(Quota::Subscribers { limit }), 4, "quota-exceeded", quota("subscribers")),
        (
            EventKind::QuotaExceeded(Quota::PerSubscriber { limit, inside, tags }),
            4,
            "quota-exceeded",
            format!("{} in=\"10.0.0.7\" vlan=\"100\" cvlan=\"7\"", quota("per-subscriber")),
        ),
        (
            EventKind::QuotaExceeded(Quota::Fragments { limit, inside, tags: untagged }),
            4,
            "quota-exceeded",
            format!("{} in=\"10.0.0.7\"", quota("fragments")),
        ),
    ] {
        assert_eq!(line(what), format!("{}{data}]", start(severity, name)));
    }
}

/// What an event takes, with the headers of UDP and IPv4: the volume of a log is reckoned by it.
#[test]
fn bytes_per_event() {
    let tags = Tags::default();
    let session = Session { inside: INSIDE, tags, outside: OUTSIDE, remote: REMOTE, protocol: 6 };
    let block = Block { inside: INSIDE.address, tags, outside: OUTSIDE.address, first: 1024, last: 1535 };
    assert_eq!(line(EventKind::SessionCreated(session)).len() + 28, 217);
    assert_eq!(line(EventKind::SessionDeleted(session, Volume::default())).len() + 28, 267);
    assert_eq!(line(EventKind::BlockAllocated(block)).len() + 28, 169);
}

#[test]
fn losses_are_a_line() {
    let mut formatter = formatter();
    assert_eq!(
        std::str::from_utf8(formatter.lost(AT, 5, 12)),
        Ok("<132>1 2023-11-14T22:13:20.250Z cgn1 netdyno - events-lost \
            [nat@32473 instance=\"1\" lost=\"5\" total=\"12\"]")
    );
}

#[test]
fn the_instance_is_escaped() {
    let config = Config { instance: "a\"b\\c]d\ne é".into(), facility: 3, ..Config::default() };
    let mut formatter = Formatter::new(config).expect("a configuration");
    let line = String::from_utf8(formatter.lost(0, 1, 1).to_vec()).expect("UTF-8");
    assert_eq!(
        line,
        "<28>1 1970-01-01T00:00:00.000Z - netdyno - events-lost \
         [nat@32473 instance=\"a\\\"b\\\\c\\]d e é\" lost=\"1\" total=\"1\"]"
    );
}

#[test]
fn what_a_header_cannot_have_is_refused() {
    let fault = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        Formatter::new(config).err().map(|fault| fault.to_string())
    };
    assert_eq!(fault(|config| config.facility = 23), None);
    assert_eq!(fault(|config| config.facility = 24).as_deref(), Some("syslog has no facility 24: 0 to 23"));
    assert_eq!(fault(|config| config.host = "h".repeat(255)), None);
    assert!(fault(|config| config.host = "h".repeat(256)).is_some());
    assert!(fault(|config| config.host = String::new()).is_some());
    assert_eq!(
        fault(|config| config.app = "a b".into()).as_deref(),
        Some("'a b' cannot be the syslog APP-NAME: 1 to 48 printable ASCII characters without spaces")
    );
    assert_eq!(fault(|config| config.instance = "n".repeat(64)), None);
    assert!(fault(|config| config.instance = "n".repeat(65)).is_some());
}

#[test]
fn days_are_of_the_calendar() {
    for (ms, want) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000, "2000-03-01T00:00:00.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (u64::MAX, "9999-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(Timestamp(ms).to_string(), want);
    }
}

proptest! {
    /// A receiver takes at least 480 bytes (RFC 5424 section 6.1), and a line has no line break.
    #[test]
    fn any_event_is_a_short_line(event in event()) {
        let mut formatter = formatter();
        let line = formatter.event(&event);
        prop_assert!(line.len() <= 480, "{} bytes", line.len());
        prop_assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    }
}
