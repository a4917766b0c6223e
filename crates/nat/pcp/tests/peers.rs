//! What programs that are not ours make of the answers: Wireshark's dissector, and natpmpc, a client of NAT-PMP.

use nat_pcp::testing::{Ask, MappingTable, filter, prefer_failure};
use nat_pcp::{Client, Config, Epoch, Server};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 7);

/// A capture file of UDP datagrams over IPv4, without link layer: requests to the server and answers from it.
fn pcap(datagrams: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101u32] {
        file.extend(word.to_le_bytes());
    }
    for (request, datagram) in datagrams {
        let (udp, ip) = (8 + datagram.len() as u16, 28 + datagram.len() as u16);
        for word in [1_700_000_000, 0, ip.into(), ip.into()] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend([0x45, 0]);
        file.extend(ip.to_be_bytes());
        file.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 254, 192, 0, 2, 253]);
        let (from, to) = if *request { (40_000, 5351) } else { (5351, 40_000) };
        for field in [from, to, udp, 0u16] {
            file.extend(field.to_be_bytes());
        }
        file.extend(datagram);
    }
    file
}

#[test]
fn tshark_reads_requests_and_answers() {
    let wish = |port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port);
    let map = Ask {
        opcode: 1,
        lifetime_s: 3600,
        client: ADDRESS,
        nonce: *b"nonce-number",
        protocol: 6,
        port: 8080,
        external: wish(8081),
        remote: SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 443),
    };
    let mut server = Server::new(Config::default(), Epoch::since(0));
    let mut book = MappingTable::default();
    let mut datagrams = Vec::new();
    let any = filter(128, 5060, Ipv4Addr::new(198, 51, 100, 9).to_ipv6_mapped());
    for request in [
        map.bytes(&[prefer_failure(), any]),
        Ask { opcode: 2, lifetime_s: 600, ..map }.bytes(&[]),
        Ask { opcode: 0, lifetime_s: 0, ..map }.bytes(&[]),
        Ask { port: 1, ..map }.bytes(&[prefer_failure()]),
        Ask { opcode: 1, client: Ipv4Addr::new(10, 0, 0, 1), ..map }.bytes(&[]),
    ] {
        let client = Client { address: ADDRESS, realm: 0 };
        let answer = server.answer(4_000_000, client, &request, &mut book).expect("an answer");
        datagrams.extend([(true, request), (false, answer)]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pcp.pcap");
    std::fs::write(&path, pcap(&datagrams)).expect("a file");
    let Ok(tshark) = Command::new("tshark").arg("-r").arg(&path).arg("-V").output() else {
        return outcome::skipped("tshark is not installed");
    };
    let text = String::from_utf8(tshark.stdout).expect("UTF-8");
    assert!(!text.to_lowercase().contains("malformed") && !text.contains("Expert Info"), "{text}");
    // Each message as a line, without what is zero or said twice.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let boring = [
        "Version: 2",
        "Reserved:",
        "Mapping Nonce: 6e6f6e63652d6e756d626572",
        "Options",
        "0...",
        "1...",
        ".000",
    ];
    let messages: Vec<String> = lines
        .split(|line| line.is_empty())
        .filter_map(|frame| frame.split(|line| line.starts_with("Port Control Protocol, ")).nth(1))
        .map(|fields| fields.iter().filter(|line| !boring.iter().any(|start| line.starts_with(start))))
        .map(|fields| fields.copied().collect::<Vec<_>>().join("; "))
        .collect();
    let suggested = "Suggested External Port: 8081; Suggested External IP Address: ::ffff:192.0.2.1";
    let assigned = "Assigned External Port: 8081; Assigned External IP Address: ::ffff:192.0.2.1";
    let ports = "Protocol: 6; Internal Port: 8080";
    let failure = "Option: Prefer Failure; Option: Prefer Failure (2); Option Length: 0";
    let filter = "Option: Filter; Option: Filter (3); Option Length: 20; Prefix Length: 128; \
                  Remote Peer Port: 5060; Remote Peer IP Address: ::ffff:198.51.100.9";
    let peer = "Remote Peer Port: 443; Remote Peer IP Address: ::ffff:198.51.100.9";
    let asks =
        |lifetime: u32| format!("Requested Lifetime: {lifetime}; Client IP Address: ::ffff:100.64.0.7");
    let says =
        |code: &str, lifetime: u32| format!("Result Code: {code}; Lifetime: {lifetime}; Epoch Time: 4000");
    let other = asks(3600).replace("100.64.0.7", "10.0.0.1");
    // What an error quotes of the request, tshark names as in an answer.
    let quoted = format!("Protocol: 6; Internal Port: 1; {assigned}; {failure}");
    let want = [
        format!("{}; Map Request; {ports}; {suggested}; {failure}; {filter}", asks(3600)),
        format!("{}; Map Response; {ports}; {assigned}; {failure}; {filter}", says("Success (0)", 3600)),
        format!("{}; Peer Request; {ports}; {suggested}; {peer}", asks(600)),
        format!("{}; Peer Response; {ports}; {assigned}; {peer}", says("Success (0)", 600)),
        format!("{}; Announce Request", asks(0)),
        format!("{}; Announce Response", says("Success (0)", 0)),
        format!("{}; Map Request; Protocol: 6; Internal Port: 1; {suggested}; {failure}", asks(3600)),
        format!("{}; Map Response; {quoted}", says("Cannot provide external port (11)", 30)),
        format!("{other}; Map Request; {ports}; {suggested}"),
        format!("{}; Map Response; {ports}; {assigned}", says("Address mismatch (12)", 1800)),
    ];
    assert_eq!(messages, want);
}

/// Its way to learn of a version that it does not speak (RFC 6887 appendix A).
#[test]
fn natpmpc_is_told_that_the_version_is_another() {
    if !outcome::network_namespace() {
        return;
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    if !up.is_ok_and(|up| up.success()) {
        return outcome::skipped("ip is not installed");
    }
    let socket =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, nat_pcp::SERVER_PORT)).expect("the port of a new namespace");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
    let child = Command::new("natpmpc")
        .args(["-g", "127.0.0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return outcome::skipped("natpmpc is not installed");
    };
    let mut server = Server::new(Config::default(), Epoch::since(0));
    let client = Client { address: Ipv4Addr::LOCALHOST, realm: 0 };
    while child.try_wait().expect("a child").is_none() {
        let mut request = [0; 2000];
        if let Ok((len, from)) = socket.recv_from(&mut request) {
            let answer =
                server.answer(0, client, &request[..len], &mut MappingTable::default()).expect("an answer");
            socket.send_to(&answer, from).expect("sent");
        }
    }
    let mut said = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
    // NATPMP_ERR_UNSUPPORTEDVERSION in natpmp.h.
    assert!(said.contains("readnatpmpresponseorretry returned -14 "), "{said}");
}
