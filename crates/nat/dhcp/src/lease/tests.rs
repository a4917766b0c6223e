#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn read(format: Format, pieces: &[&[u8]]) -> (Vec<Record>, Vec<String>) {
    let (mut parser, mut records) = (Parser::new(format), Vec::new());
    for piece in pieces {
        parser.feed(piece, |record| records.push(record));
    }
    parser.finish();
    let faults = parser.take_faults();
    assert!(faults.count() as usize >= faults.latest().count());
    (records, faults.latest().map(Fault::to_string).collect())
}

fn lease(last: u8, expires: Option<u64>) -> Lease {
    Lease {
        address: Ipv4Addr::new(192, 0, 2, last),
        hardware: Some([2, 0, 0, 0, 0, last]),
        client_id: None,
        hostname: None,
        expires,
    }
}

const KEA: &str = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n\
192.0.2.1,02:00:00:00:00:01,01:02:00:00:00:00:01,3600,2000,1,0,0,a&#x2cb,0,\n\
192.0.2.2,02:00:00:00:00:02,,3600,2000,1,0,0,,0,{ \"a\": 1&#x2c \"b\": 2 }\n\
192.0.2.1,02:00:00:00:00:01,01:02:00:00:00:00:01,0,2100,1,0,0,,0,\n\
192.0.2.3,,,3600,2000,1,0,0,,1,\n\
192.0.2.4,02:00:00:00:00:04,,3600,2000,1,0,0,,2,\n\
192.0.2.5,02:00:00:00:00:05,,4294967295,4294969295,1,0,0,,0,\n";

fn kea_says() -> Vec<Record> {
    let mut first = lease(1, Some(2000));
    first.client_id = Some(vec![1, 2, 0, 0, 0, 0, 1]);
    first.hostname = Some("a,b".into());
    let address = |last| Ipv4Addr::new(192, 0, 2, last);
    vec![
        Record::Leased(first),
        Record::Leased(lease(2, Some(2000))),
        Record::Free(address(1), LeaseEnd::Released),
        Record::Free(address(3), LeaseEnd::Declined),
        Record::Free(address(4), LeaseEnd::Expired),
        Record::Leased(lease(5, None)),
    ]
}

#[test]
fn kea_lines_are_records() {
    assert_eq!(read(Format::Kea, &[KEA.as_bytes()]), (kea_says(), vec![]));
    assert_eq!(read(Format::Kea, &[KEA.replace('\n', "\r\n").as_bytes()]), (kea_says(), vec![]));
}

#[test]
fn kea_columns_are_found_by_their_names() {
    let text = "address,state,pool_id,expire,valid_lifetime,client_id,hwaddr\n192.0.2.2,0,7,2000,3600,,02:00:00:00:00:02\n";
    assert_eq!(read(Format::Kea, &[text.as_bytes()]), (vec![Record::Leased(lease(2, Some(2000)))], vec![]));
    let (records, faults) = read(Format::Kea, &[b"address,hwaddr\n"]);
    assert_eq!((records.len(), faults), (0, vec!["line 1: a field is missing".to_string()]));
}

#[test]
fn kea_garbage_is_told_with_its_line() {
    let good = "192.0.2.2,02:00:00:00:00:02,,3600,2000,1,0,0,,0,\n";
    for (bad, why) in [
        ("garbage", "not an IPv4 address of a host"),
        ("192.0.2.256,02:00:00:00:00:02,,3600,2000,1,0,0,,0,", "not an IPv4 address of a host"),
        ("224.0.0.1,02:00:00:00:00:02,,3600,2000,1,0,0,,0,", "not an IPv4 address of a host"),
        ("192.0.2.2,02:00:00:zz:00:02,,3600,2000,1,0,0,,0,", "not a hardware address or client identifier"),
        ("192.0.2.2,02:00:00:00:00:02,,+3600,2000,1,0,0,,0,", "not a time"),
        ("192.0.2.2,02:00:00:00:00:02,,3600,99999999999999999999,1,0,0,,0,", "not a time"),
        ("192.0.2.2,02:00:00:00:00:02,,3600,2000,1,0,0,,9,", "not a state of a lease"),
        ("192.0.2.2,02:00", "a field is missing"),
    ] {
        let (records, faults) = read(Format::Kea, &[good.as_bytes(), bad.as_bytes(), b"\n", good.as_bytes()]);
        assert_eq!((records.len(), faults), (2, vec![format!("line 2: {why}")]), "{bad}");
    }
    let (records, faults) =
        read(Format::Kea, &[good.as_bytes(), &[0xff, b',', b'\n'], &good.as_bytes()[..20]]);
    assert_eq!(records.len(), 1);
    assert_eq!(faults, ["line 2: not what belongs there", "line 3: it is cut off"]);
}

const ISC: &str = r#"# The format of this file is documented in the dhcpd.leases(5) manual page.
authoring-byte-order little-endian;
server-duid "\000\001\000\001;{";

lease 192.0.2.1 {
  starts 4 2024/02/29 22:59:59;
  ends 4 2024/02/29 23:59:59;
  tstp 4 2024/02/29 23:59:59;
  cltt 4 2024/02/29 22:59:59;
  binding state active;
  next binding state free;
  rewind binding state free;
  hardware ethernet 02:00:00:00:00:01;
  uid "\001\002\000\000\"\\;";
  set vendor-class-identifier = "a } b";
  client-hostname "phone";
  on expiry {
    if 1 = 1 { log(info, "gone"); }
  }
}
lease 192.0.2.2 {
  starts epoch 1000; # Thu Jan  1 00:16:40 1970
  ends epoch 2000; # Thu Jan  1 00:33:20 1970
  binding state active;
  hardware ethernet 2:0:0:0:0:2;
}
lease 192.0.2.5 {
  ends never;
  binding state active;
  hardware ethernet 02:00:00:00:00:05;
  uid 01:02;
}
failover peer "x" state {
  my state normal at 4 2024/02/29 22:59:59;
}
lease 192.0.2.1 {
  ends 4 2024/02/29 23:00:00;
  binding state free;
}
lease 192.0.2.6 {
  ends never;
  binding state abandoned;
}
"#;

fn isc_says() -> Vec<Record> {
    let mut first = lease(1, Some(1_709_251_199));
    first.client_id = Some(b"\x01\x02\0\0\"\\;".to_vec());
    first.hostname = Some("phone".into());
    let mut third = lease(5, None);
    third.client_id = Some(vec![1, 2]);
    vec![
        Record::Leased(first),
        Record::Leased(lease(2, Some(2000))),
        Record::Leased(third),
        Record::Free(Ipv4Addr::new(192, 0, 2, 1), LeaseEnd::Released),
        Record::Free(Ipv4Addr::new(192, 0, 2, 6), LeaseEnd::Declined),
    ]
}

#[test]
fn isc_blocks_are_records() {
    assert_eq!(read(Format::Isc, &[ISC.as_bytes()]), (isc_says(), vec![]));
}

#[test]
fn isc_garbage_costs_its_own_block() {
    let good = "lease 192.0.2.2 {\n  ends epoch 2000;\n  binding state active;\n  hardware ethernet 02:00:00:00:00:02;\n}\n";
    for (bad, why) in [
        ("lease 192.0.2.3 {\n  ends epoch 20\n", "line 8: it is cut off"),
        ("lease 192.0.2.3 {\n  ends epoch 20;\n", "line 8: it is cut off"),
        ("lease 192.0.2.3 {\n  on expiry {\n  {\n", "line 9: it is cut off"),
        ("lease 192.0.2.3 {\n  uid \"abc\n", "line 7: not what belongs there"),
        ("lease 192.0.2.3 {\n  ends 4 2024/02/30 00:00:00;\n}\n", "line 6: not a time"),
        ("lease 192.0.2.3 {\n  binding state active;\n}\n", "line 6: a field is missing"),
        ("lease 192.0.2.3 {\n  ends never;\n  binding state x;\n}\n", "line 6: not a state of a lease"),
        (
            "lease 192.0.2.3 {\n  ends never;\n  hardware ethernet 1:2;\n}\n",
            "line 6: not a hardware address or client identifier",
        ),
        ("lease 192.0.2.3 {\n  ends never\n}\n", "line 6: not what belongs there"),
        ("lease 300.0.2.3 {\n  ends never;\n}\n", "line 6: not an IPv4 address of a host"),
        ("}\n", "line 6: not what belongs there"),
        ("hello;\n", "line 6: not what belongs there"),
        ("hello {\n}\n", "line 6: not what belongs there"),
    ] {
        let (records, faults) = read(Format::Isc, &[good.as_bytes(), bad.as_bytes(), good.as_bytes()]);
        assert_eq!(records.len(), 2, "{bad}: {faults:?}");
        assert!(faults.iter().any(|fault| fault == why), "{bad}: {faults:?}");
    }
    let long = format!("lease 192.0.2.3 {{\n  uid \"{}\";\n  ends never;\n}}\n", "x".repeat(5000));
    let (records, faults) = read(Format::Isc, &[long.as_bytes(), good.as_bytes()]);
    assert_eq!(faults, ["line 2: the line is too long"]);
    assert_eq!(records.len(), 2);
    assert_eq!(read(Format::Isc, &[good.as_bytes(), b"lease 192"]).1, ["line 6: it is cut off"]);
}

fn events(table: &mut Table, now: u64, records: Vec<Record>) -> Vec<String> {
    let mut told = Vec::new();
    for record in records {
        table.apply(record, now, |event| told.push(said(&event)));
    }
    told
}

fn said(event: &LeaseEvent) -> String {
    match event {
        LeaseEvent::Granted(lease) => format!("granted {} {:?}", lease.address, lease.expires),
        LeaseEvent::Renewed(lease) => format!("renewed {} {:?}", lease.address, lease.expires),
        LeaseEvent::Ended(lease, why) => format!("ended {} {why:?}", lease.address),
    }
}

#[test]
fn only_what_is_new_is_an_event() {
    let mut table = Table::new(2);
    let told =
        events(&mut table, 0, vec![Record::Leased(lease(1, Some(100))), Record::Leased(lease(2, None))]);
    assert_eq!(told, ["granted 192.0.2.1 Some(100)", "granted 192.0.2.2 None"]);
    assert_eq!(events(&mut table, 50, vec![Record::Leased(lease(1, Some(100)))]), [""; 0]);
    assert_eq!(
        events(&mut table, 50, vec![Record::Leased(lease(1, Some(200)))]),
        ["renewed 192.0.2.1 Some(200)"]
    );
    assert_eq!(table.next_end(), Some(200));
    // No room, until one ends.
    assert_eq!(events(&mut table, 50, vec![Record::Leased(lease(3, Some(300)))]), [""; 0]);
    assert_eq!((table.refused(), table.len()), (1, 2));
    let other = Lease { hardware: Some([2; 6]), ..lease(2, Some(150)) };
    assert_eq!(
        events(&mut table, 50, vec![Record::Leased(other)]),
        ["ended 192.0.2.2 Reassigned", "granted 192.0.2.2 Some(150)"]
    );
    let mut told = Vec::new();
    table.expire(149, |event| told.push(said(&event)));
    assert_eq!(told, [""; 0]);
    table.expire(150, |event| told.push(said(&event)));
    assert_eq!(told, ["ended 192.0.2.2 Expired"]);
    // What was over before we read of it ends what we knew, and begins nothing.
    assert_eq!(
        events(&mut table, 300, vec![Record::Leased(lease(1, Some(300)))]),
        ["ended 192.0.2.1 Expired"]
    );
    assert_eq!(events(&mut table, 300, vec![Record::Leased(lease(1, Some(300)))]), [""; 0]);
    assert_eq!(
        events(&mut table, 300, vec![Record::Free(Ipv4Addr::new(192, 0, 2, 1), LeaseEnd::Released)]),
        [""; 0]
    );
    assert_eq!((table.next_end(), table.is_empty()), (None, true));
}

#[test]
fn faults_are_all_counted_and_the_latest_kept() {
    let mut faults = Faults::default();
    (1..=20).for_each(|line| faults.add(line, SyntaxError::Time));
    let mut other = Faults::default();
    (1..=20).for_each(|line| other.add(line + 100, SyntaxError::State));
    faults.append(other);
    assert_eq!(faults.count(), 40);
    assert_eq!(faults.latest().map(|fault| fault.line).collect::<Vec<_>>(), (105..=120).collect::<Vec<_>>());
}

#[test]
fn names_are_bounded() {
    let line = |name: &str| format!("192.0.2.2,02:00:00:00:00:02,,3600,2000,1,0,0,{name},0,\n");
    let (records, _) = read(Format::Kea, &[line(&"é".repeat(400)).as_bytes()]);
    let Record::Leased(lease) = &records[0] else { panic!("{records:?}") };
    assert!(lease.hostname.as_ref().unwrap().len() <= HOSTNAME);
    let id = |bytes: usize| {
        format!("192.0.2.2,02:00:00:00:00:02,{},3600,2000,1,0,0,,0,\n", vec!["00"; bytes].join(":"))
    };
    assert_eq!(read(Format::Kea, &[id(CLIENT_ID).as_bytes()]).0.len(), 1);
    assert_eq!(read(Format::Kea, &[id(CLIENT_ID + 1).as_bytes()]).0.len(), 0);
}

/// Cut at any places.
fn pieces<'a>(text: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

/// Files with bytes changed, taken out and put in.
fn damaged(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<u8>()), 0..12).prop_map(
        move |damage| {
            let mut bytes = text.as_bytes().to_vec();
            for (at, kind, byte) in damage {
                let at = at.index(bytes.len());
                match kind {
                    0 => bytes[at] = byte,
                    1 => bytes.truncate(bytes.len() - bytes.len() / 8),
                    _ => bytes.insert(at, b"\n\",{};#\\"[usize::from(byte) % 8]),
                }
            }
            bytes
        },
    )
}

proptest! {
    #[test]
    fn pieces_do_not_matter(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        prop_assert_eq!(read(Format::Kea, &pieces(KEA.as_bytes(), &cuts)), (kea_says(), vec![]));
        prop_assert_eq!(read(Format::Isc, &pieces(ISC.as_bytes(), &cuts)), (isc_says(), vec![]));
    }

    #[test]
    fn noise_is_read_the_same_in_any_pieces(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), damaged(KEA), damaged(ISC)],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        for format in [Format::Kea, Format::Isc] {
            let whole = read(format, &[&bytes]);
            for record in &whole.0 {
                prop_assert!(of_a_host(record.address()));
            }
            prop_assert_eq!(&read(format, &pieces(&bytes, &cuts)), &whole);
        }
    }

    /// After any noise that does not leave a quote open a good lease is read.
    #[test]
    fn what_follows_noise_is_read(bytes in prop_oneof![damaged(KEA), damaged(ISC)]) {
        let kea = b"\n192.0.2.77,02:00:00:00:00:4d,,3600,2000,1,0,0,,0,\n";
        let isc = b"\nlease 192.0.2.77 {\n ends epoch 2000;\n hardware ethernet 02:00:00:00:00:4d;\n}\n";
        let whole = Record::Leased(lease(77, Some(2000)));
        // A header that was damaged may name other columns.
        if !bytes.windows(8).any(|window| window == b"address,") || bytes.starts_with(&KEA.as_bytes()[..102]) {
            prop_assert_eq!(read(Format::Kea, &[&bytes, kea]).0.pop(), Some(whole.clone()));
        }
        prop_assert_eq!(read(Format::Isc, &[&bytes, isc]).0.pop(), Some(whole));
    }

    /// A table tells each change once: what it told adds up to what it holds.
    #[test]
    fn events_add_up(history in prop::collection::vec((1..5_u8, 0..4_u8, 1..60_u64), 0..60)) {
        let (mut table, mut now, mut there) = (Table::new(3), 0, std::collections::HashMap::new());
        let mut told = |event: LeaseEvent| match event {
            LeaseEvent::Granted(lease) => assert!(there.insert(lease.address, lease).is_none()),
            LeaseEvent::Renewed(lease) => assert!(there.insert(lease.address, lease).is_some()),
            LeaseEvent::Ended(lease, _) => assert_eq!(there.remove(&lease.address), Some(lease)),
        };
        for (last, kind, time) in history {
            now += time / 10;
            table.expire(now, &mut told);
            let given = Lease { hardware: Some([2, 0, 0, 0, 0, kind % 2]), ..lease(last, Some(now + time)) };
            let record = match kind {
                3 => Record::Free(given.address, LeaseEnd::Released),
                _ => Record::Leased(given),
            };
            table.apply(record, now, &mut told);
        }
        let held: std::collections::HashMap<_, _> = table.iter().map(|lease| (lease.address, lease.clone())).collect();
        prop_assert_eq!(held, there);
    }
}
