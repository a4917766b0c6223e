//! What Wireshark's dissectors make of the messages.

use crate::common::{AT, events};
use nat_log::{ipfix, syslog};
use std::process::Command;

/// A capture file of UDP datagrams over IPv4, without link layer.
fn pcap(port: u16, datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101u32] {
        file.extend(word.to_le_bytes());
    }
    for datagram in datagrams {
        let (udp, ip) = (8 + datagram.len() as u16, 28 + datagram.len() as u16);
        for word in [(AT / 1000) as u32, 250_000, ip.into(), ip.into()] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0]);
        file.extend(ip.to_be_bytes());
        file.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 254, 192, 0, 2, 253]);
        for field in [4000, port, udp, 0u16] {
            file.extend(field.to_be_bytes());
        }
        file.extend(datagram);
    }
    file
}

/// Every field that tshark sees, a line each; `None` where it is not installed.
fn dissect(port: u16, protocol: &str, datagrams: &[Vec<u8>]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log.pcap");
    std::fs::write(&path, pcap(port, datagrams)).expect("a file");
    let decode = format!("udp.port=={port},{protocol}");
    let tshark = Command::new("tshark").arg("-r").arg(&path).args(["-V", "-d", &decode]).output();
    let Ok(tshark) = tshark else {
        outcome::skipped("tshark is not installed");
        return None;
    };
    assert!(tshark.status.success(), "{}", String::from_utf8_lossy(&tshark.stderr));
    let text = String::from_utf8(tshark.stdout).expect("UTF-8");
    assert!(!text.to_lowercase().contains("malformed"), "{text}");
    assert!(!text.contains("Expert Info"), "{text}");
    Some(text.lines().map(|line| line.trim().to_owned()).collect())
}

#[test]
fn every_ipfix_field_has_its_name_and_value() {
    let mut exporter = ipfix::Exporter::new(ipfix::Config::default()).expect("a configuration");
    let mut messages = Vec::new();
    let mut out = |message: &[u8], _: u32| messages.push(message.to_vec());
    for event in events() {
        exporter.event(AT, &event, &mut out);
    }
    exporter.lost(AT, 77, &mut out);
    exporter.flush(AT, &mut out);
    let Some(lines) = dissect(4739, "cflow", &messages) else { return };
    assert!(!lines.iter().any(|line| line.contains("Unknown")), "{}", lines.join("\n"));
    let start = "Observation Time Milliseconds: Nov 14, 2023 22:13:20.250000000 UTC";
    let flow = "SrcAddr: 10.0.0.7; Post NAT Source IPv4 Address: 192.0.2.1; Protocol: TCP (6); \
                SrcPort: 40000 (40000); Post NAPT Source Transport Port: 1024; \
                DstAddr: 198.51.100.9; DstPort: 443 (443)";
    let mapping = "SrcAddr: 10.0.0.7; Post NAT Source IPv4 Address: 192.0.2.1; Protocol: UDP (17); \
                   SrcPort: 40000 (40000); Post NAPT Source Transport Port: 1024";
    let block = "SrcAddr: 10.0.0.7; Post NAT Source IPv4 Address: 192.0.2.1; \
                 Port Range Start: 1024; Port Range End: 1535";
    let volume = "Initiator Packets: 3; Initiator Octets: 180; Responder Packets: 4; Responder Octets: 5000";
    let want = [
        format!("NAT44 session create (4); {flow}; Dot1q Vlan Id: 100"),
        format!("NAT44 session delete (5); {flow}; {volume}; Dot1q Vlan Id: 100; Dot1q Customer Vlan Id: 7"),
        format!("{flow}; {volume}"),
        format!("NAT44 BIB create (8); {mapping}"),
        format!("NAT44 BIB delete (9); {mapping}"),
        format!("Port block allocation (16); {block}"),
        format!("Port block de-allocation (17); {block}"),
        "NAT Addresses exhausted (3); Nat Pool Id: 3".into(),
        "NAT ports exhausted (12); Post NAT Source IPv4 Address: 192.0.2.1; Protocol: UDP (17)".into(),
        quota("Maximum session entries (1); Max Session Entries: 1000"),
        quota("Maximum BIB entries (2); Max BIB Entries: 1000"),
        quota("Maximum active hosts or subscribers (4); Max Subscribers: 1000"),
        quota("Maximum entries per user (3); Max Entries Per User: 1000; SrcAddr: 10.0.0.7"),
        quota(
            "Maximum fragments pending reassembly (5); Max Fragments Pending Reassembly: 1000; SrcAddr: 10.0.0.7",
        ),
    ];
    let mut want: Vec<String> = want
        .iter()
        .map(|record| {
            if record.starts_with("SrcAddr") {
                return format!("{start}; NAT Instance ID: 1; {record}");
            }
            let (event, rest) = record.split_once("; ").expect("fields");
            format!("{start}; Nat Event: {event}; NAT Instance ID: 1; {rest}")
        })
        .collect();
    want.push(format!("FlowExporter: 1; {start}; Not Sent Flows: 77"));
    assert_eq!(records(&lines), want);
}

fn quota(rest: &str) -> String {
    format!("Quota Exceeded (13); NAT Quota Exceeded Event: {rest}")
}

/// The fields of each record.
fn records(lines: &[String]) -> Vec<String> {
    let begins = |line: &String| line.starts_with("Flow ") && line[5..].parse::<u32>().is_ok();
    lines
        .split(|line| line.starts_with("Set ") || line.is_empty())
        .flat_map(|set| set.split(begins).skip(1))
        .map(|fields| fields.join("; "))
        .collect()
}

#[test]
fn a_syslog_line_has_its_parts() {
    let mut formatter = syslog::Formatter::new(syslog::Config::default()).expect("a configuration");
    let datagrams: Vec<Vec<u8>> = events().iter().map(|event| formatter.event(event).to_vec()).collect();
    let Some(lines) = dissect(514, "syslog", &datagrams) else { return };
    let count = |line: &str| lines.iter().filter(|got| *got == line).count();
    for (want, times) in [
        (".... .110 = Level: INFO - informational (6)", 7),
        (".... .100 = Level: WARNING - warning conditions (4)", 7),
        ("1000 0... = Facility: LOCAL0 - reserved for local use (16)", 14),
        ("Syslog version: 1", 14),
        ("Syslog timestamp: Nov 14, 2023 22:13:20.250000000 UTC", 14),
        ("Syslog app name: netdyno", 14),
        ("Syslog process id: -", 14),
    ] {
        assert_eq!(count(want), times, "{want}\n{}", lines.join("\n"));
    }
}
