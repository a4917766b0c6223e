//! A file that ISC's dhcpd 4.4.3 wrote while three clients booted, one renewed, released and came back, and one declined.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use nat_dhcp::lease::{LeaseEnd, Parser, Table};
use nat_dhcp::{Format, LeaseEvent};

#[test]
fn what_dhcpd_wrote() {
    let (mut parser, mut records) = (Parser::new(Format::Isc), Vec::new());
    parser.feed(include_bytes!("data/dhcpd.leases"), |record| records.push(record));
    parser.finish();
    assert_eq!(parser.take_faults().count(), 0);

    let (mut table, mut told) = (Table::new(10), Vec::new());
    // date -u -d '2026-11-22 21:49:38' +%s
    let now = 1_795_384_178;
    for record in records {
        table.apply(record, now, |event| {
            let (what, lease) = match event {
                LeaseEvent::Granted(lease) => ("granted".to_string(), lease),
                LeaseEvent::Renewed(lease) => ("renewed".to_string(), lease),
                LeaseEvent::Ended(lease, why) => (format!("{why:?}"), lease),
            };
            let id = [&[1], &lease.hardware.unwrap()[..]].concat();
            assert_eq!(lease.client_id.as_deref(), Some(&id[..]));
            told.push((what, lease.address.octets()[3], lease.expires.unwrap() - now));
        });
    }
    let told: Vec<_> = told.iter().map(|(what, last, left)| (what.as_str(), *last, *left)).collect();
    let released = format!("{:?}", LeaseEnd::Released);
    let declined = format!("{:?}", LeaseEnd::Declined);
    assert_eq!(
        told,
        [
            ("granted", 10, 596),
            ("granted", 11, 597),
            ("granted", 12, 598),
            ("renewed", 12, 600),
            (&released, 12, 600),
            (&declined, 10, 596),
            ("granted", 12, 600),
        ]
    );
}
