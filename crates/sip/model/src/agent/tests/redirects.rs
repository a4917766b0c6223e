//! Calls that follow redirections.

use super::*;

fn following() -> Bench<UserAgent> {
    let scenario = Scenario::Preset(Preset::Call);
    bench_of(0, Params { scenario, follow_redirects: true, ..Params::default() })
}

/// The INVITE that follows the ACK to the response.
fn next(bench: &mut Bench<UserAgent>) -> String {
    let said = sent(bench);
    assert!(said[0].starts_with("ACK ") && said.len() == 2, "{said:?}");
    said[1].clone()
}

#[test]
fn a_call_goes_to_each_contact_once_the_best_first() {
    let mut bench = following();
    begin(&mut bench);
    let first = one(&mut bench);
    let contacts = "Contact: <sip:low@sip.example.net>;q=0.1, <sip:high@sip.example.net>;q=0.9\r\n";
    receive(&mut bench, &response(&first, 302, "s", contacts));
    let second = next(&mut bench);
    assert!(second.starts_with("INVITE sip:high@sip.example.net SIP/2.0\r\n"), "{second}");
    assert_eq!(value(&second, "Call-ID"), value(&first, "Call-ID"));
    assert_eq!((value(&second, "CSeq"), value(&second, "To")), ("2 INVITE", value(&first, "To")));
    receive(&mut bench, &response(&second, 486, "h", ""));
    let third = next(&mut bench);
    assert!(third.starts_with("INVITE sip:low@sip.example.net SIP/2.0\r\n"), "{third}");
    receive(&mut bench, &response(&third, 200, "l", "Contact: <sip:low@sip.example.net>\r\n"));
    let said = sent(&mut bench);
    assert!(said[0].starts_with("ACK sip:low@") && said[1].starts_with("BYE sip:low@"), "{said:?}");
    receive(&mut bench, &response(&said[1], 200, "l", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    let counts = ["session_requests", "sessions_redirected", "sessions_answered", "sessions_completed"];
    assert_eq!(counts.map(|name| counter(&bench, name)), [3, 1, 1, 1]);
    assert_eq!(delays(&bench, "redirect").len(), 1);
}

#[test]
fn a_circle_of_redirections_ends() {
    let mut bench = following();
    begin(&mut bench);
    let first = one(&mut bench);
    receive(&mut bench, &response(&first, 302, "s", "Contact: <sip:other@sip.example.net>\r\n"));
    let second = next(&mut bench);
    let back = "Contact: <sip:callee0@sip.example.net>, <sip:other@sip.example.net>\r\n";
    receive(&mut bench, &response(&second, 302, "s", back));
    assert!(one(&mut bench).starts_with("ACK "));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert!(bench.examples[0].contains("redirected in a circle"), "{:?}", bench.examples);
}

#[test]
fn a_chain_without_end_is_left() {
    let mut bench = following();
    begin(&mut bench);
    let mut invite = one(&mut bench);
    for hop in 0..10 {
        let contact = format!("Contact: <sip:hop{hop}@sip.example.net>\r\n");
        receive(&mut bench, &response(&invite, 302, "s", &contact));
        invite = next(&mut bench);
    }
    receive(&mut bench, &response(&invite, 302, "s", "Contact: <sip:eleven@sip.example.net>\r\n"));
    assert!(one(&mut bench).starts_with("ACK "));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert!(bench.examples[0].contains("redirected over 10 times"), "{:?}", bench.examples);
}

#[test]
fn a_redirection_goes_to_the_address_in_its_contact() {
    let mut bench = following();
    bench.peer = "10.0.0.8:5060".parse().ok();
    begin(&mut bench);
    let first = one(&mut bench);
    let contact = "Contact: <sip:b@10.0.0.9:5090>\r\n";
    receive(&mut bench, &response(&first, 302, "s", contact));
    let gone = std::mem::take(&mut bench.out.elsewhere);
    let [(to, bytes)] = &gone[..] else { panic!("{} messages", gone.len()) };
    assert_eq!(to.to_string(), "10.0.0.9:5090");
    assert!(bytes.starts_with(b"INVITE sip:b@10.0.0.9:5090 SIP/2.0\r\n"));
}
