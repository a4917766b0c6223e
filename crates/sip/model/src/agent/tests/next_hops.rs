//! Where requests within a dialog go, and what comes from elsewhere.

use super::*;

const ELSEWHERE: &str = "10.0.0.9:5070";

fn called(contact: &str) -> (Bench<UserAgent>, String) {
    called_by(Params::default(), contact)
}

fn called_by(params: Params, contact: &str) -> (Bench<UserAgent>, String) {
    let hold = Interval::ms(100);
    let mut bench = bench_of(0, Params { scenario: Scenario::Preset(Preset::Call), hold, ..params });
    bench.peer = "10.0.0.8:5060".parse().ok();
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b1", contact));
    (bench, invite)
}

/// What was sent to others than the server.
fn sent_elsewhere(bench: &mut Bench<UserAgent>) -> Vec<(String, String)> {
    let all = std::mem::take(&mut bench.out.elsewhere);
    all.into_iter().map(|(to, bytes)| (to.to_string(), String::from_utf8(bytes).expect("text"))).collect()
}

#[test]
fn ack_and_bye_go_to_the_remote_target() {
    let contact = format!("Contact: <sip:b@{ELSEWHERE}>\r\n");
    let (mut bench, invite) = called(&contact);
    let ack = sent_elsewhere(&mut bench);
    assert!(matches!(&ack[..], [(to, ack)] if to == ELSEWHERE && ack.starts_with("ACK ")), "{ack:?}");
    // the 200 again, from the server: the ACK goes where it went
    receive(&mut bench, &response(&invite, 200, "b1", &contact));
    assert_eq!(sent_elsewhere(&mut bench), ack);
    // a re-INVITE of the callee is answered to where it came from
    bench.from = ELSEWHERE.parse().ok();
    let to = value(&invite, "From");
    let mut reinvite =
        incoming("INVITE", 7, value(&invite, "Call-ID"), to).replace("<sip:a@x>;tag=a1", "<sip:b@h>;tag=b1");
    reinvite = reinvite.replace("Record-Route: <sip:p1;lr>\r\n", "");
    receive(&mut bench, &reinvite);
    let answer = sent_elsewhere(&mut bench);
    assert!(
        matches!(&answer[..], [(to, one)] if to == ELSEWHERE && one.starts_with("SIP/2.0 200 ")),
        "{answer:?}"
    );
    bench.from = None;
    let ack = incoming("ACK", 7, value(&invite, "Call-ID"), to).replace(";tag=a1", ";tag=b1");
    receive(&mut bench, &ack);
    after(&mut bench, 100 * MS);
    let bye = sent_elsewhere(&mut bench);
    assert!(matches!(&bye[..], [(to, bye)] if to == ELSEWHERE && bye.starts_with("BYE ")), "{bye:?}");
    after(&mut bench, 500 * MS);
    assert_eq!(sent_elsewhere(&mut bench), bye, "it is sent again to the same");
    receive(&mut bench, &response(&bye[0].1, 200, "", ""));
    assert_eq!((bench.end, sent(&mut bench).len()), (Some(FlowEnd::Completed), 0));
}

#[test]
fn they_go_to_the_server_where_that_is_the_way() {
    let route = format!("Record-Route: <sip:10.0.0.8;lr>\r\nContact: <sip:b@{ELSEWHERE}>\r\n");
    for more in [&*route, "Contact: <sip:nd00000003@10.0.0.9:5070>\r\n", "Contact: <sip:b@name.example>\r\n"]
    {
        let (mut bench, _) = called(more);
        assert_eq!(sent_elsewhere(&mut bench), [], "{more}");
        assert!(one(&mut bench).starts_with("ACK "), "{more}");
    }
    let proxied = Params { outbound_proxy: true, ..Params::default() };
    let (mut bench, _) = called_by(proxied, &format!("Contact: <sip:b@{ELSEWHERE}>\r\n"));
    assert!(one(&mut bench).starts_with(&format!("ACK sip:b@{ELSEWHERE} ")));
    after(&mut bench, 100 * MS);
    assert!(one(&mut bench).starts_with("BYE "));
    assert_eq!(sent_elsewhere(&mut bench), [], "all goes to the outbound proxy");
    let (mut bench, _) = called("Record-Route: <sip:10.0.0.7;lr>\r\nContact: <sip:b@10.0.0.8>\r\n");
    assert_eq!(sent_elsewhere(&mut bench)[0].0, "10.0.0.7:5060");
}

#[test]
fn a_silent_remote_target_is_not_the_servers_fault() {
    let (mut bench, _) = called(&format!("Contact: <sip:b@{ELSEWHERE}>\r\n"));
    after(&mut bench, 100 * MS);
    assert_eq!(sent_elsewhere(&mut bench).len(), 2, "ACK and BYE");
    bench.link = Link::Keep;
    for _ in 0..20 {
        bench.now = bench.now.max(bench.wake);
        bench.call(|device, cx| {
            cx.has_next = true;
            device.timer(cx);
        });
        assert!(
            sent_elsewhere(&mut bench).iter().all(|(to, bye)| to == ELSEWHERE && bye.starts_with("BYE "))
        );
        if bench.end.is_some() {
            break;
        }
    }
    assert!(matches!(bench.link, Link::Keep) && sent(&mut bench).is_empty());
    assert_eq!((counter(&bench, "requests_moved"), counter(&bench, "calls_dropped")), (0, 0));
    assert!(bench.end.is_some_and(|end| end != FlowEnd::Completed));
}
