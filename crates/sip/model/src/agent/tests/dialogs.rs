//! Scenarios with several dialogs.

use super::*;

fn steps(text: &str) -> Bench<UserAgent> {
    let steps: Vec<Step> = serde_json::from_str(text).expect("steps");
    let mut params = Params { scenario: Scenario::Steps(steps), ..Params::default() };
    params.set_data(&protocol::data::Data::default());
    bench_of(0, params)
}

fn wrong(text: &str) -> String {
    let steps: Vec<Step> = serde_json::from_str(text).expect("steps");
    let mut params = Params { scenario: Scenario::Steps(steps), ..Params::default() };
    params.set_data(&protocol::data::Data::default());
    params.check().expect_err("wrong").to_string()
}

/// A controller of third-party call control: the offer of one callee goes to the other, and its answer back.
const CONTROLLER: &str = r#"[
    {"send": {"method": "INVITE", "dialog": "a", "uri": "sip:a@h"}},
    {"expect": {"status": 200, "dialog": "a", "capture": {"offer": {"body": true}}}},
    {"send": {"method": "INVITE", "dialog": "b", "uri": "sip:b@h", "body": "{response.offer}", "content_type": "application/sdp"}},
    {"expect": {"status": 200, "dialog": "b", "capture": {"answer": {"body": true}}}},
    {"send": {"method": "ACK", "dialog": "b"}},
    {"send": {"method": "ACK", "dialog": "a", "body": "{response.answer}", "content_type": "application/sdp"}},
    {"send": {"method": "BYE", "dialog": "b"}},
    {"expect": {"status": 200, "dialog": "b"}},
    {"send": {"method": "BYE", "dialog": "a"}},
    {"expect": {"status": 200, "dialog": "a"}}
]"#;

fn answer(invite: &str, contact: &str, body: &str) -> String {
    let text = response(invite, 200, contact, &format!("Contact: <sip:{contact}@10.0.0.9>\r\n"));
    text.replace("Content-Length: 0\r\n\r\n", &format!("Content-Length: {}\r\n\r\n{body}", body.len()))
}

#[test]
fn a_controller_has_two_calls_at_a_time() {
    let mut bench = steps(CONTROLLER);
    begin(&mut bench);
    let first = one(&mut bench);
    assert!(first.starts_with("INVITE sip:a@h ") && first.contains("Content-Length: 0"), "{first}");
    receive(&mut bench, &answer(&first, "a1", "v=0\r\no=a\r\n"));
    let second = one(&mut bench);
    assert!(second.starts_with("INVITE sip:b@h ") && second.ends_with("\r\n\r\nv=0\r\no=a\r\n"), "{second}");
    assert_ne!(value(&first, "Call-ID"), value(&second, "Call-ID"));
    // both are sent again while unanswered; the first is not
    after(&mut bench, 500 * MS);
    assert_eq!(one(&mut bench), second);
    receive(&mut bench, &answer(&second, "b1", "v=0\r\no=b\r\n"));
    let all = sent(&mut bench);
    let starts = ["ACK sip:b1@", "ACK sip:a1@", "BYE sip:b1@"];
    assert!(all.iter().zip(starts).all(|(one, start)| one.starts_with(start)), "{all:?}");
    assert!(all[1].ends_with("\r\n\r\nv=0\r\no=b\r\n") && all[1].contains(";tag=a1"), "{}", all[1]);
    assert_eq!(value(&all[1], "Call-ID"), value(&first, "Call-ID"));
    // the 200 to the first call comes again, and is acknowledged again
    receive(&mut bench, &answer(&first, "a1", ""));
    assert_eq!(one(&mut bench), all[1]);
    receive(&mut bench, &response(&all[2], 200, "", ""));
    let bye = one(&mut bench);
    assert!(bye.starts_with("BYE sip:a1@"), "{bye}");
    receive(&mut bench, &response(&bye, 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    let counted = ["session_requests", "sessions_answered", "sessions_completed", "unrelated_messages"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [2, 2, 2, 0]);
}

#[test]
fn a_call_that_comes_in_goes_out_in_another_dialog() {
    let mut bench = steps(
        r#"[{"expect": {"request": "INVITE", "dialog": "in"}},
            {"send": {"method": "INVITE", "dialog": "out", "sdp": true}},
            {"expect": {"status": 200, "dialog": "out", "capture": {"answer": {"body": true}}}},
            {"answer": {"status": 200, "dialog": "in", "body": "{response.answer}", "content_type": "application/sdp"}},
            {"send": {"method": "ACK", "dialog": "out"}},
            {"expect": {"request": "ACK", "dialog": "in"}},
            {"expect_any": [{"request": "BYE", "dialog": "in"}, {"request": "BYE", "dialog": "out", "then": "end"}]},
            {"answer": {"status": 200, "dialog": "in"}},
            {"send": {"method": "BYE", "dialog": "out"}},
            {"expect": {"status": 200, "dialog": "out"}},
            {"label": "end"}]"#,
    );
    begin(&mut bench);
    receive(&mut bench, &incoming("INVITE", 1, "call-1", "<sip:b@x>"));
    let invite = one(&mut bench);
    assert!(invite.starts_with("INVITE sip:callee0@"), "{invite}");
    receive(&mut bench, &answer(&invite, "c", "v=0\r\n"));
    let all = sent(&mut bench);
    assert!(all[0].starts_with("SIP/2.0 200 OK") && all[0].ends_with("\r\n\r\nv=0\r\n"), "{all:?}");
    assert_eq!(value(&all[0], "Content-Type"), "application/sdp");
    assert!(all[1].starts_with("ACK sip:c@"), "{all:?}");
    let to = value(&all[0], "To").to_owned();
    receive(&mut bench, &incoming("ACK", 1, "call-1", &to));
    receive(&mut bench, &incoming("BYE", 2, "call-1", &to));
    let all = sent(&mut bench);
    assert!(all[0].starts_with("SIP/2.0 200 OK") && value(&all[0], "Call-ID") == "call-1", "{all:?}");
    receive(&mut bench, &response(&all[1], 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
}

#[test]
fn a_registration_that_names_a_dialog_has_its_call_id() {
    let mut bench = steps(
        r#"[{"send": {"method": "REGISTER", "dialog": "call"}}, {"expect": {"status": 200, "dialog": "call"}},
            {"send": {"method": "INVITE", "dialog": "call", "sdp": true}}, {"expect": {"status": 200, "dialog": "call"}}]"#,
    );
    begin(&mut bench);
    let register = one(&mut bench);
    assert_eq!(value(&register, "To"), "<sip:user0@sip.example.net>");
    receive(&mut bench, &response(&register, 200, "s", ""));
    let invite = one(&mut bench);
    assert_eq!(value(&invite, "Call-ID"), value(&register, "Call-ID"));
    assert_eq!(value(&invite, "To"), "<sip:callee0@sip.example.net>");
}

#[test]
fn a_user_agent_answers_registrations_and_any_request() {
    let mut bench = steps(
        r#"[{"expect": {"request": "REGISTER"}}, {"answer": {"status": 200}},
            {"expect": {"request": "any"}}, {"answer": {"status": 202}}]"#,
    );
    begin(&mut bench);
    assert!(bench.call(|device, _| device.is_free()), "it waits for a registration");
    let contact = "\r\nContact: <sip:u@h>;expires=60\r\nContent-Length";
    let register = incoming("REGISTER", 1, "call-1", "<sip:b@x>").replacen("\r\nContent-Length", contact, 1);
    receive(&mut bench, &register);
    let answer = one(&mut bench);
    assert_eq!(value(&answer, "Contact"), "<sip:u@h>;expires=60");
    receive(&mut bench, &incoming("INFO", 2, "call-1", "<sip:b@x>"));
    assert!(one(&mut bench).starts_with("SIP/2.0 202 "));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
}

#[test]
fn what_is_wrong_with_dialogs_is_named() {
    let body = r#"[{"send": {"method": "OPTIONS"}}, {"expect": {"status": 200, "capture": {"b": {"body": true}}}},
        {"send": {"method": "OPTIONS", "headers": {"X": "{response.b}"}}}]"#;
    let many = (0..9).map(|n| format!(r#"{{"send": {{"method": "OPTIONS", "dialog": "d{n}"}}}}"#));
    let many = format!("[{}]", many.collect::<Vec<_>>().join(","));
    for (text, word) in [
        (body, "b is captured from a body"),
        (&many, "10 dialogs are too many"),
        (r#"[{"send": {"method": "OPTIONS", "dialog": "a b"}}]"#, "\"a b\" cannot be the name of a dialog"),
        (r#"[{"answer": {"status": 200, "reliable": true}}]"#, "200 is no provisional response"),
    ] {
        let told = wrong(text);
        assert!(told.contains(word), "{told}: {word}");
    }
}
