use super::*;
use run::tls::ServerTls;

const LISTEN: &str = "192.0.2.1:5060";
const UAC: &str = "192.0.2.9:5060";

fn server(change: impl FnOnce(&mut Settings)) -> Server {
    let mut settings = Settings::new(LISTEN.parse().expect("address"), "example.net");
    change(&mut settings);
    settings.check().expect("settings");
    Server::new(settings)
}

fn peer(address: &str) -> Peer {
    Peer::udp(address.parse().expect("address"))
}

fn request(method: &str, uri: &str, branch: &str, more: &str) -> Vec<u8> {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK{branch}\r\nFrom: <sip:bob@example.net>;tag=1\r\n\
         To: <sip:alice@example.net>\r\nCall-ID: c{branch}\r\nCSeq: 1 {method}\r\n{more}Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

fn text(out: &Out) -> Vec<String> {
    out.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
}

#[test]
fn a_binding_ends_in_time() {
    let mut server = server(|_| {});
    let register =
        request("REGISTER", "sip:example.net", "1", "Contact: <sip:alice@192.0.2.7>\r\nExpires: 60\r\n");
    let out = text(&server.receive(peer(UAC), &register, 0));
    assert!(
        out[0].starts_with("SIP/2.0 200 OK") && out[0].contains("<sip:alice@192.0.2.7>;expires=60"),
        "{out:?}"
    );
    assert_eq!(server.counters().bindings, 1);
    let query = request("REGISTER", "sip:example.net", "2", "");
    assert!(text(&server.receive(peer(UAC), &query, 59_000 * MS))[0].contains(";expires=1\r\n"));
    server.on_timer(60_000 * MS);
    assert_eq!(server.counters().bindings, 0);
}

#[test]
fn what_only_removes_bindings_is_counted_apart() {
    let mut server = server(|_| {});
    let mut register = |cseq: &str, fields: &str| {
        let out = text(&server.receive(peer(UAC), &request("REGISTER", "sip:example.net", cseq, fields), 0));
        assert!(out[0].starts_with("SIP/2.0 200 OK"), "{out:?}");
        (server.counters().registrations, server.counters().removals)
    };
    let contact = "Contact: <sip:alice@192.0.2.7>\r\n";
    assert_eq!(register("1", &format!("{contact}Expires: 60\r\n")), (1, 0));
    assert_eq!(register("2", ""), (2, 0), "a question");
    assert_eq!(register("3", &format!("{contact}Expires: 0\r\n")), (3, 1));
    assert_eq!(register("4", "Contact: *\r\nExpires: 0\r\n"), (4, 2));
}

#[test]
fn a_call_is_forked_and_the_others_are_cancelled() {
    let mut server = server(|_| {});
    for (n, contact) in ["192.0.2.7:7", "192.0.2.8:8"].into_iter().enumerate() {
        let more = format!("Contact: <sip:alice@{contact}>\r\n");
        server.receive(peer(UAC), &request("REGISTER", "sip:example.net", &n.to_string(), &more), 0);
    }
    let out = server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), MS);
    let to: Vec<_> = out.iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [peer(UAC), peer("192.0.2.7:7"), peer("192.0.2.8:8")]);
    let sent = text(&out);
    assert!(
        sent[0].starts_with("SIP/2.0 100")
            && sent[1].contains("Max-Forwards: 70")
            && sent[1].contains(";lr>")
    );
    let answer = |sent: &str, status: &str| {
        let request = Message::read(sent.as_bytes()).expect("request");
        let (code, reason) = status.split_once(' ').expect("status");
        Message::response(&request, code.parse().expect("code"), reason, Some("t")).to_bytes()
    };
    server.receive(peer("192.0.2.8:8"), &answer(&sent[2], "180 Ringing"), 2 * MS);
    let out = server.receive(peer("192.0.2.7:7"), &answer(&sent[1], "200 OK"), 3 * MS);
    assert_eq!(out.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [peer(UAC), peer("192.0.2.8:8")]);
    let said = text(&out);
    assert!(
        said[0].starts_with("SIP/2.0 200") && said[1].starts_with("CANCEL sip:alice@192.0.2.8:8"),
        "{said:?}"
    );
    assert_eq!(said[0].matches("Via:").count(), 1);
}

/// A server at which alice has these two bindings.
fn bound(contacts: [&str; 2]) -> Server {
    let mut server = server(|_| {});
    for (n, contact) in contacts.into_iter().enumerate() {
        let more = format!("Contact: <{contact}>\r\n");
        let out =
            server.receive(peer(UAC), &request("REGISTER", "sip:example.net", &n.to_string(), &more), 0);
        assert!(text(&out)[0].starts_with("SIP/2.0 200"), "{out:?}");
    }
    server
}

#[test]
fn a_binding_that_cannot_be_reached_is_passed_over() {
    let (gone, other) = ("sip:alice@k3x.invalid;transport=ws", "sip:alice@p9z.invalid;transport=ws");
    let phone = "sip:alice@192.0.2.8:8";
    for (contacts, reached) in [([gone, phone], true), ([phone, gone], true), ([gone, other], false)] {
        let mut server = bound(contacts);
        for method in ["INVITE", "MESSAGE"] {
            let out = server.receive(peer(UAC), &request(method, "sip:alice@example.net", method, ""), MS);
            let said = text(&out);
            let refused = said.iter().filter(|one| one.starts_with("SIP/2.0 480")).count();
            let sent = out.iter().filter(|(to, _)| *to == peer("192.0.2.8:8")).count();
            assert_eq!((refused, sent), (usize::from(!reached), usize::from(reached)), "{said:?}");
        }
    }
}

#[test]
fn the_best_answer_of_a_fork_counts_whichever_came_first_over_any_transport() {
    let answer = |invite: &[u8], code: u16| {
        let request = Message::read(invite).expect("request");
        Message::response(&request, code, "Reason", Some("t")).to_bytes()
    };
    let status = |out: &Out| {
        let ours = out.iter().filter(|(to, _)| *to == peer(UAC));
        ours.filter_map(|(_, bytes)| String::from_utf8_lossy(bytes).split(' ').nth(1)?.parse::<u16>().ok())
            .filter(|code| *code >= 200)
            .collect::<Vec<_>>()
    };
    for transport in ["", ";transport=tcp"] {
        let contacts = ["192.0.2.7:7", "192.0.2.8:8"].map(|at| format!("sip:alice@{at}{transport}"));
        // the first answers; the other does later, or never
        for (first, other, best) in
            [(603, Some(487), 603), (486, Some(603), 603), (486, Some(404), 404), (486, None, 486)]
        {
            let mut server = bound(contacts.each_ref().map(String::as_str));
            let out = server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), MS);
            let [(a, to_a), (b, to_b)] = [&out[1], &out[2]];
            if other.is_some() {
                server.receive(*b, &answer(to_b, 180), 2 * MS);
            }
            let mut found = status(&server.receive(*a, &answer(to_a, first), 3 * MS));
            assert!(found.is_empty(), "the other branch is open");
            if let Some(other) = other {
                found = status(&server.receive(*b, &answer(to_b, other), 4 * MS));
            }
            while let Some(at) = server.deadline().filter(|at| found.is_empty() && *at < 60_000 * MS) {
                found = status(&server.on_timer(at));
            }
            assert_eq!(found, [best], "{transport}: {first}, {other:?}");
        }
    }
}

#[test]
fn who_registered_over_tls_is_called_over_the_same_connection() {
    let identity = ServerTls { cert: None, key: None, self_signed: true, client_ca: None, resumption: true };
    let secure = |listen: &str| crate::settings::TlsListener {
        listen: listen.parse().expect("address"),
        identity: identity.clone(),
    };
    let mut server = server(|settings| settings.tls = Some(secure("192.0.2.1:5061")));
    let alice = Peer { transport: Transport::Tls, address: "192.0.2.7:40000".parse().expect("address") };
    // a port that nobody listens on
    let contact = "Contact: <sip:alice@192.0.2.7:5060;transport=tls>\r\n";
    server.receive(alice, &request("REGISTER", "sip:example.net", "1", contact), 0);
    let out = server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), MS);
    assert_eq!(out.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [peer(UAC), alice]);
    let invite = &text(&out)[1];
    assert!(invite.contains("Via: SIP/2.0/TLS 192.0.2.1:5061;"), "{invite}");
    let routes: Vec<_> = invite.lines().filter(|line| line.starts_with("Record-Route")).collect();
    let both =
        ["Record-Route: <sip:192.0.2.1:5061;transport=tls;lr>", "Record-Route: <sip:192.0.2.1:5060;lr>"];
    assert_eq!(routes, both, "RFC 5658 section 4");
    let routes = "Route: <sip:192.0.2.1:5060;lr>\r\nRoute: <sip:192.0.2.1:5061;transport=tls;lr>\r\n";
    let bye = request("BYE", "sip:alice@192.0.2.7:5060;transport=tls", "b", routes);
    let out = server.receive(peer(UAC), &bye, 2 * MS);
    assert_eq!(out.len(), 1, "{:?}", text(&out));
    assert!(out[0].0 == alice && !text(&out)[0].contains("\r\nRoute"), "{:?}", text(&out));
    server.closed(alice, None);
    let out = server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "j", ""), 3 * MS);
    assert!(text(&out).last().expect("an answer").starts_with("SIP/2.0 480"), "{:?}", text(&out));
}

/// A request over a connection whose Via names a port that clients listen on.
fn aliased(transport: &str, host: &str, number: u32, more: &str) -> Vec<u8> {
    format!(
        "OPTIONS sip:example.net SIP/2.0\r\nVia: SIP/2.0/{transport} {host};branch=z9hG4bKa{number}{more}\r\n\
         From: <sip:bob@example.net>;tag=1\r\nTo: <sip:alice@example.net>\r\nCall-ID: a{number}\r\nCSeq: 1 OPTIONS\r\n\
         Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Where a request for `uri` goes.
fn next_hop(server: &mut Server, uri: &str, number: u32) -> Option<Peer> {
    let out = server.receive(peer(UAC), &request("MESSAGE", uri, &format!("h{number}"), ""), MS);
    out.last().map(|(to, _)| *to).filter(|to| *to != peer(UAC))
}

#[test]
fn a_tcp_connection_is_reused_by_its_alias_where_that_is_wanted() {
    let phone = Peer::tcp("192.0.2.7:40000".parse().expect("address"));
    let listens = Peer::tcp("192.0.2.7:5060".parse().expect("address"));
    for (accepts, via, reused) in
        [(true, ";alias", true), (true, "", false), (false, ";alias", false), (true, ";ALIAS;rport", true)]
    {
        let mut server = server(|settings| settings.accept_aliases = accepts);
        server.receive(phone, &aliased("TCP", "phone.example.net:5060", 1, via), 0);
        let to = next_hop(&mut server, "sip:alice@192.0.2.7;transport=tcp", 1);
        assert_eq!(to, Some(if reused { phone } else { listens }), "{accepts} {via}");
        // the name in Via may be anybody's
        assert_eq!(next_hop(&mut server, "sip:alice@phone.example.net;transport=tcp", 2), None);
        // another port, and another transport
        let other = Peer::tcp("192.0.2.7:5070".parse().expect("address"));
        assert_eq!(next_hop(&mut server, "sip:alice@192.0.2.7:5070;transport=tcp", 3), Some(other));
        assert_eq!(next_hop(&mut server, "sip:alice@192.0.2.7", 4), Some(peer("192.0.2.7:5060")));
        server.closed(phone, None);
        assert_eq!(next_hop(&mut server, "sip:alice@192.0.2.7;transport=tcp", 5), Some(listens));
    }
}

#[test]
fn a_tls_connection_is_reused_by_its_alias_where_the_certificate_proves_it() {
    let proxy = Peer { transport: Transport::Tls, address: "192.0.2.7:40000".parse().expect("address") };
    for (via, proven, reused) in [(";alias", true, true), (";alias", false, false), ("", true, false)] {
        let mut server = server(|_| {});
        let request = aliased("TLS", "proxy.example.org", 1, via);
        server.receive_from(proxy, &request, 0, &|host| proven && host == "proxy.example.org");
        for (number, uri) in (1..).zip([
            "sips:alice@proxy.example.org",
            "sip:alice@proxy.example.org:5061;transport=tls",
            "sips:alice@PROXY.example.org;transport=tcp",
        ]) {
            assert_eq!(next_hop(&mut server, uri, number), reused.then_some(proxy), "{uri} {via} {proven}");
        }
        assert_eq!(next_hop(&mut server, "sips:alice@proxy.example.org:5071", 9), None);
    }
}

#[test]
fn another_port_of_an_address_that_is_the_domain_is_somebody_elses() {
    let mut server = server(|settings| settings.domain = "192.0.2.1".into());
    let mut number = 0;
    let mut to = |uri: &str| {
        number += 1;
        let out = server.receive(peer(UAC), &request("MESSAGE", uri, &format!("m{number}"), ""), MS);
        out.last().map(|(to, _)| *to)
    };
    let callee = Some(peer("192.0.2.1:40000"));
    for uri in ["sip:bob@192.0.2.1:40000", "sip:192.0.2.1:40000", "sip:alice@192.0.2.1:40000"] {
        assert_eq!(to(uri), callee, "{uri}");
    }
    assert_eq!(to("sip:bob@192.0.2.1"), Some(peer(UAC)), "bob is not registered");
}

#[test]
fn a_uas_repeats_its_200_until_the_ack() {
    let mut server = server(|settings| settings.role = Role::Uas);
    let out = text(&server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), 0));
    assert!(out[0].starts_with("SIP/2.0 180") && out[1].starts_with("SIP/2.0 200"), "{out:?}");
    assert_eq!(text(&server.on_timer(500 * MS)), [out[1].clone()]);
    assert!(server.receive(peer(UAC), &within("ACK", "a", &out[1]), 600 * MS).is_empty());
    assert!(server.on_timer(40_000 * MS).is_empty());
    let counters = server.counters();
    assert_eq!(
        (counters.calls_acknowledged, counters.calls_unacknowledged, counters.responses_repeated),
        (1, 0, 1)
    );
}

#[test]
fn a_share_of_requests_is_rejected_and_a_share_of_messages_lost() {
    let mut rejecting = server(|settings| settings.error_share = 0.5);
    let mut losing = server(|settings| settings.drop_share = 0.5);
    for n in 0..1000 {
        let options = request("OPTIONS", "sip:192.0.2.1", &n.to_string(), "");
        rejecting.receive(peer(UAC), &options, n);
        losing.receive(peer(UAC), &options, n);
    }
    let counters = rejecting.counters();
    assert_eq!(counters.responses[&200] + counters.responses[&503], 1000);
    assert!((400..600).contains(&counters.rejected_on_purpose), "{}", counters.rejected_on_purpose);
    let counters = losing.counters();
    assert_eq!(counters.requests["OPTIONS"] + counters.dropped_on_purpose, 1000);
    assert!((400..600).contains(&counters.dropped_on_purpose), "{}", counters.dropped_on_purpose);
}

#[test]
fn a_response_is_as_late_as_asked() {
    let mut server = server(|settings| settings.delay_ms = 30);
    assert!(server.receive(peer(UAC), &request("OPTIONS", "sip:192.0.2.1", "1", ""), 0).is_empty());
    assert_eq!(server.deadline(), Some(30 * MS));
    assert!(server.on_timer(29 * MS).is_empty());
    assert!(text(&server.on_timer(30 * MS))[0].starts_with("SIP/2.0 200"));
}

#[test]
fn transactions_end_and_leave_nothing() {
    let mut server = server(|_| {});
    for n in 0..100 {
        server.receive(peer(UAC), &request("OPTIONS", "sip:192.0.2.1", &n.to_string(), ""), 0);
        server.receive(peer(UAC), &request("INVITE", "sip:x@192.0.2.77", &format!("i{n}"), ""), 0);
    }
    assert_eq!((server.incoming.len(), server.outgoing.len()), (200, 100));
    let mut now = 0;
    while let Some(at) = server.deadline() {
        assert!(at >= now && at < 200_000 * MS, "{at}");
        now = at;
        server.on_timer(now);
    }
    assert_eq!((server.incoming.len(), server.outgoing.len()), (0, 0));
    assert_eq!(server.counters().responses[&408], 100);
}

#[test]
fn any_bytes_are_no_panic() {
    use rand::Rng;
    let mut chance = SmallRng::seed_from_u64(3);
    let mut server = server(|settings| settings.role = Role::Uas);
    let mut proxy = self::server(|_| {});
    for n in 0..5000 {
        let mut bytes =
            request("INVITE", "sip:alice@example.net", &(n % 50).to_string(), "Route: <sip:a;lr>\r\n");
        for _ in 0..chance.random_range(1..4) {
            let at = chance.random_range(0..bytes.len());
            bytes[at] = chance.random();
        }
        server.receive(peer(UAC), &bytes, n * MS);
        proxy.receive(Peer::tcp(UAC.parse().expect("address")), &bytes, n * MS);
        server.on_timer(n * MS);
        proxy.on_timer(n * MS);
    }
}

/// An INVITE with an offer of audio from `port`.
fn offer(branch: &str, port: u16) -> Vec<u8> {
    let body = format!(
        "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"
    );
    let head = String::from_utf8(request("INVITE", "sip:echo@192.0.2.1", branch, "")).expect("text");
    let length = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n", body.len());
    (head.replace("Content-Length: 0\r\n", &length) + &body).into_bytes()
}

fn echoing(room: usize) -> Server {
    let mut server = server(|settings| (settings.role, settings.echo) = (Role::Uas, Some(40_000)));
    server.echo = Arc::new(EchoCalls::with_room(room));
    server
}

#[test]
fn where_no_more_calls_can_have_audio_the_next_is_busy_until_a_bye_of_its_dialog() {
    let mut server = echoing(1);
    let first = text(&server.receive(peer(UAC), &offer("i", 4000), 0)).pop().expect("an answer");
    assert!(first.starts_with("SIP/2.0 200"), "{first}");
    let next = |server: &mut Server, branch: &str| text(&server.receive(peer(UAC), &offer(branch, 4002), MS));
    let busy = next(&mut server, "j");
    assert!(busy.iter().any(|one| one.starts_with("SIP/2.0 486")), "{busy:?}");
    let to = first.lines().find_map(|line| line.strip_prefix("To: ")).expect("To").to_owned();
    let bye = |branch: &str, to: &str| {
        let bye = String::from_utf8(request("BYE", "sip:192.0.2.1", branch, "")).expect("text");
        bye.replace(&format!("Call-ID: c{branch}"), "Call-ID: ci")
            .replace("To: <sip:alice@example.net>", &format!("To: {to}"))
            .into_bytes()
    };
    server.receive(peer(UAC), &bye("b1", "<sip:alice@example.net>;tag=guessed"), 2 * MS);
    assert!(next(&mut server, "k").iter().any(|one| one.starts_with("SIP/2.0 486")), "it is still up");
    server.receive(peer(UAC), &bye("b2", &to), 3 * MS);
    let free = next(&mut server, "l");
    assert!(free.iter().any(|one| one.starts_with("SIP/2.0 200")), "{free:?}");
    assert_eq!((server.counters().audio_calls, server.counters().responses[&486]), (2, 2));
}

#[test]
fn a_uas_keeps_no_long_call_ids() {
    let mut server = echoing(1);
    let long = |branch: &str, length: usize| {
        let invite = String::from_utf8(offer(branch, 4000)).expect("text");
        invite
            .replace(&format!("Call-ID: c{branch}"), &format!("Call-ID: {}", "c".repeat(length)))
            .into_bytes()
    };
    let out = text(&server.receive(peer(UAC), &long("i", 257), 0));
    assert!(out.len() == 1 && out[0].starts_with("SIP/2.0 400 "), "{out:?}");
    let out = text(&server.receive(peer(UAC), &long("j", 256), 0));
    assert!(out.iter().any(|one| one.starts_with("SIP/2.0 200")), "{out:?}");
}

/// A request of the dialog that a response made.
fn within(method: &str, branch: &str, response: &str) -> Vec<u8> {
    let field = |name: &str| response.lines().find(|line| line.starts_with(name)).expect("field").to_owned();
    String::from_utf8(request(method, "sip:192.0.2.1", branch, ""))
        .expect("text")
        .replace(&format!("Call-ID: c{branch}"), &field("Call-ID: "))
        .replace("To: <sip:alice@example.net>", &field("To: "))
        .into_bytes()
}

#[test]
fn a_request_within_no_dialog_of_a_uas_is_answered_with_481() {
    let mut server = server(|settings| settings.role = Role::Uas);
    let mut answer =
        |message: &[u8], at: u64| text(&server.receive(peer(UAC), message, at)).pop().unwrap_or_default();
    let ok = answer(&request("INVITE", "sip:alice@example.net", "i", ""), 0);
    assert!(ok.starts_with("SIP/2.0 200"), "{ok}");
    assert!(
        answer(&request("BYE", "sip:192.0.2.1", "b1", ""), MS).starts_with("SIP/2.0 481"),
        "without a tag"
    );
    let other = ok.replace(";tag=", ";tag=x");
    for (n, method) in ["BYE", "INFO", "INVITE"].into_iter().enumerate() {
        let said = answer(&within(method, &format!("o{n}"), &other), 2 * MS);
        assert!(said.starts_with("SIP/2.0 481"), "{method}: {said}");
    }
    for (branch, method) in [("x1", "INFO"), ("x2", "INVITE"), ("x3", "BYE")] {
        let said = answer(&within(method, branch, &ok), 3 * MS);
        assert!(said.starts_with("SIP/2.0 200"), "{method}: {said}");
    }
    assert!(answer(&within("BYE", "b2", &ok), 4 * MS).starts_with("SIP/2.0 481"), "it is over");
    assert!(answer(&request("OPTIONS", "sip:192.0.2.1", "p", ""), 4 * MS).starts_with("SIP/2.0 200"));
    assert_eq!(server.counters().calls_ended, 1);
}

#[test]
fn an_ack_with_other_tags_acknowledges_nothing() {
    let mut server = server(|settings| settings.role = Role::Uas);
    let ok = text(&server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), 0));
    let ok = ok.last().expect("an answer");
    server.receive(peer(UAC), &within("ACK", "a1", &ok.replace(";tag=", ";tag=x")), MS);
    assert_eq!((server.counters().calls_acknowledged, server.counters().unrelated), (0, 1));
    assert_eq!(text(&server.on_timer(501 * MS)), [ok.as_str()], "it is sent again");
    server.receive(peer(UAC), &within("ACK", "a2", ok), 502 * MS);
    assert_eq!(server.counters().calls_acknowledged, 1);
    assert!(server.on_timer(40_000 * MS).is_empty());
}

#[test]
fn a_call_that_ends_while_it_rings_is_terminated() {
    for cancelled in [false, true] {
        let mut server = server(|settings| (settings.role, settings.ring_ms) = (Role::Uas, 100));
        let ringing =
            text(&server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), 0));
        assert!(ringing[0].starts_with("SIP/2.0 180"), "{ringing:?}");
        let said = if cancelled {
            let cancel =
                String::from_utf8(request("CANCEL", "sip:alice@example.net", "i", "")).expect("text");
            text(&server.receive(peer(UAC), cancel.as_bytes(), MS))
        } else {
            let mut said = text(&server.receive(peer(UAC), &within("BYE", "b", &ringing[0]), MS));
            said.extend(text(&server.on_timer(100 * MS)));
            said
        };
        assert!(said[0].starts_with("SIP/2.0 200") && said[1].starts_with("SIP/2.0 487"), "{said:?}");
        let bye = text(&server.receive(peer(UAC), &within("BYE", "b9", &ringing[0]), 101 * MS));
        assert!(bye[0].starts_with("SIP/2.0 481"), "{bye:?}");
    }
}

#[test]
fn a_call_whose_200_is_never_acknowledged_is_ended_by_a_bye() {
    let mut server = server(|settings| settings.role = Role::Uas);
    let more = "Contact: <sip:bob@192.0.2.7:5070>\r\nRecord-Route: <sip:192.0.2.3;lr>\r\nRecord-Route: <sip:192.0.2.4;lr>\r\n";
    let said = text(&server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", more), 0));
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let (mut repeated, mut byes) = (0, Vec::new());
    while let Some(at) = server.deadline() {
        for (to, bytes) in server.on_timer(at) {
            let text = String::from_utf8(bytes).expect("text");
            match text.split(' ').next() {
                Some("BYE") => byes.push((at, to, text)),
                _ => repeated += 1,
            }
        }
    }
    let (at, to, bye) = &byes[0];
    assert_eq!((*at, *to, repeated), (32_000 * MS, peer("192.0.2.3:5060"), 10), "64 T1");
    assert!(bye.starts_with("BYE sip:bob@192.0.2.7:5070 SIP/2.0\r\n"), "{bye}");
    assert_eq!(bye.matches("Route: <").count(), 2, "{bye}");
    assert_eq!(field(bye, "From: "), field(&said[1], "To: "), "the tag is ours");
    assert_eq!(
        (field(bye, "To: "), field(bye, "CSeq: ")),
        ("<sip:bob@example.net>;tag=1".into(), "1 BYE".into())
    );
    assert_eq!(field(bye, "Call-ID: "), "ci");
    assert_eq!(byes.len(), 11, "Timer E, until Timer F");
    let counters = server.counters();
    assert_eq!((counters.calls_unacknowledged, counters.calls_hung_up), (1, 1));
}

#[test]
fn a_call_that_its_caller_ended_gets_no_bye() {
    let mut server = server(|settings| settings.role = Role::Uas);
    let said = text(&server.receive(peer(UAC), &request("INVITE", "sip:alice@example.net", "i", ""), 0));
    server.receive(peer(UAC), &within("BYE", "b", &said[1]), MS);
    while let Some(at) = server.deadline() {
        let out = text(&server.on_timer(at));
        assert!(out.iter().all(|one| one.starts_with("SIP/2.0 200")), "{out:?}");
    }
    assert_eq!(server.counters().calls_hung_up, 0);
}

#[test]
fn a_user_agent_refuses_what_it_must() {
    let mut server = server(|settings| settings.role = Role::Uas);
    let uri = "sip:alice@example.net";
    let body = "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi";
    let with_body = |branch: &str| {
        let text = String::from_utf8(request("INVITE", uri, branch, "")).expect("text");
        text.replace("Content-Length: 0\r\n\r\n", body).into_bytes()
    };
    let version = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).expect("text");
        text.replacen(" SIP/2.0\r\n", " SIP/7.0\r\n", 1).into_bytes()
    };
    for (bytes, status, says) in [
        (request("INVITE", uri, "1", "Require: foo, bar\r\n"), 420, "Unsupported: foo, bar"),
        (request("OPTIONS", uri, "2", "Require: foo\r\n"), 420, "Unsupported: foo"),
        (with_body("3"), 415, "Accept: application/sdp"),
        (request("OPTIONS", "mailto:alice@example.net", "4", ""), 416, ""),
        (version(request("INVITE", uri, "5", "")), 505, ""),
    ] {
        let out = text(&server.receive(peer(UAC), &bytes, 0));
        assert!(out[0].starts_with(&format!("SIP/2.0 {status} ")) && out[0].contains(says), "{out:?}");
    }
    let invite = request("INVITE", uri, "6", "Contact: <sip:bob@192.0.2.9>\r\n");
    let out = text(&server.receive(peer(UAC), &invite, 0));
    let to = out[1].lines().find(|line| line.starts_with("To:")).expect("To").to_owned();
    // the same by another way
    let other = String::from_utf8(invite).expect("text").replace("z9hG4bK6", "z9hG4bK66");
    assert!(text(&server.receive(peer(UAC), other.as_bytes(), MS))[0].starts_with("SIP/2.0 482 "));
    let within = |method: &str, cseq: u32| {
        let text = String::from_utf8(request(method, uri, "6", "")).expect("text");
        let text =
            text.replace("To: <sip:alice@example.net>", &to).replace("CSeq: 1", &format!("CSeq: {cseq}"));
        text.replace("z9hG4bK6", &format!("z9hG4bK6{method}{cseq}")).into_bytes()
    };
    for (method, cseq, status) in [("INFO", 5, 200), ("OPTIONS", 4, 500), ("BYE", 3, 500), ("BYE", 6, 200)] {
        let out = text(&server.receive(peer(UAC), &within(method, cseq), 2 * MS));
        assert!(out[0].starts_with(&format!("SIP/2.0 {status} ")), "{method} {cseq}: {out:?}");
    }
}

#[test]
fn a_response_without_its_connection_goes_to_the_port_of_via() {
    let from = Peer::tcp("192.0.2.9:40000".parse().expect("address"));
    for (port, to) in [(":5080", "192.0.2.9:5080"), ("", "192.0.2.9:5060")] {
        let response = format!(
            "SIP/2.0 200 OK\r\nVia: SIP/2.0/TCP pc.example.net{port};branch=z9hG4bK1;received=192.0.2.9\r\n\
             From: <sip:a@b>;tag=1\r\nTo: <sip:a@b>;tag=2\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(
            without_connection(response.as_bytes(), from),
            Some(Peer::tcp(to.parse().expect("address")))
        );
    }
}
