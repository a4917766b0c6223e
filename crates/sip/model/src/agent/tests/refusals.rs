//! Requests that a callee refuses, and BYEs that no step waits for.

use super::*;

fn with(message: &str, more: &str, body: &str) -> String {
    message
        .replace("Content-Length: 0\r\n\r\n", &format!("{more}Content-Length: {}\r\n\r\n{body}", body.len()))
}

fn status(answer: &str) -> &str {
    &answer[8..11]
}

#[test]
fn a_callee_refuses_what_a_server_must_refuse() {
    let mut bench = registered(Preset::Answer);
    let invite = |call: &str| incoming("INVITE", 1, call, "<sip:b@x>");
    let refused = [
        (
            with(&invite("1"), "Require: 100rel, foo\r\nRequire: bar\r\n", ""),
            "420",
            "Unsupported: foo, bar\r\n",
        ),
        (with(&invite("2"), "Content-Type: text/plain\r\n", "hello"), "415", "Accept: application/sdp"),
        (
            with(&invite("3"), "Content-Type: application/sdp\r\nContent-Encoding: gzip\r\n", "x"),
            "415",
            "Accept-Encoding: identity",
        ),
        (invite("4").replacen("sip:nd00000000@10.0.0.1:40000", "mailto:b@x", 1), "416", ""),
        (invite("5").replacen(" SIP/2.0\r\n", " SIP/7.0\r\n", 1), "505", ""),
        (incoming("INVITE", 1, "6", "<sip:b@x>;tag=gone"), "481", ""),
        (incoming("BYE", 1, "7", "<sip:b@x>;tag=gone"), "481", ""),
        (incoming("BYE", 1, "8", "<sip:b@x>"), "481", ""),
    ];
    for (request, code, says) in refused {
        receive(&mut bench, &request);
        let answer = one(&mut bench);
        assert_eq!(status(&answer), code, "{request}{answer}");
        assert!(answer.contains(says), "{answer}");
        if code != "505" {
            receive(&mut bench, &request);
            assert_eq!(one(&mut bench), answer, "the same again");
        }
    }
    // none of them is in the way of a call
    let part = "--b\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n--b--\r\n";
    receive(
        &mut bench,
        &with(&invite("9"), "Require: 100rel\r\nContent-Type: multipart/mixed;boundary=b\r\n", part),
    );
    let answers = sent(&mut bench);
    assert_eq!(answers.iter().map(|one| status(one)).collect::<Vec<_>>(), ["180", "200"]);
    // the same INVITE by another way
    receive(&mut bench, &invite("9").replace("z9hG4bKp", "z9hG4bKq"));
    assert_eq!(status(&one(&mut bench)), "482");
    let to = value(&answers[1], "To").to_owned();
    receive(&mut bench, &incoming("ACK", 1, "9", &to));
    receive(&mut bench, &incoming("INFO", 5, "9", &to));
    assert_eq!(status(&one(&mut bench)), "200");
    receive(&mut bench, &incoming("OPTIONS", 4, "9", &to));
    assert_eq!(status(&one(&mut bench)), "500");
    receive(&mut bench, &incoming("BYE", 6, "9", &to));
    assert_eq!(status(&one(&mut bench)), "200");
    assert_eq!(["calls_received", "answers_acknowledged"].map(|name| counter(&bench, name)), [1, 1]);
}

#[test]
fn each_bye_is_answered() {
    let mut bench = registered(Preset::Answer);
    receive(&mut bench, &incoming("INVITE", 1, "1", "<sip:b@x>"));
    let to = value(&sent(&mut bench)[1], "To").to_owned();
    // a stranger's, while we wait for the ACK
    receive(&mut bench, &incoming("BYE", 2, "other", "<sip:b@x>;tag=other"));
    assert_eq!(status(&one(&mut bench)), "481");
    // of another callee of a forked call
    receive(&mut bench, &incoming("BYE", 2, "1", "<sip:b@x>;tag=other"));
    assert_eq!(status(&one(&mut bench)), "481");
    // the ACK was lost
    let bye = incoming("BYE", 3, "1", &to);
    receive(&mut bench, &bye);
    let answer = one(&mut bench);
    assert_eq!(status(&answer), "200");
    after(&mut bench, 600 * MS);
    assert_eq!(sent(&mut bench).len(), 0, "the 200 to INVITE is not sent again");
    receive(&mut bench, &bye);
    assert_eq!(one(&mut bench), answer);
    receive(&mut bench, &incoming("BYE", 4, "1", &to));
    assert_eq!(status(&one(&mut bench)), "481", "the call is over");
    assert_eq!(counter(&bench, "answers_acknowledged"), 0);
    receive(&mut bench, &incoming("ACK", 1, "1", &to));
    assert_eq!(counter(&bench, "answers_acknowledged"), 1, "it was late");
    assert_eq!((bench.end, counter(&bench, "calls_received")), (None, 1));
}

#[test]
fn a_bye_ends_a_call_that_rings() {
    let ring = Interval::ms(1000);
    let scenario = Scenario::Preset(Preset::Answer);
    let mut bench = registered_of(bench_of(0, Params { scenario, ring, ..Params::default() }));
    receive(&mut bench, &incoming("INVITE", 1, "1", "<sip:b@x>"));
    let to = value(&one(&mut bench), "To").to_owned();
    receive(&mut bench, &incoming("BYE", 2, "1", &to));
    let answers = sent(&mut bench);
    assert_eq!(
        answers.iter().map(|one| (status(one), value(one, "CSeq"))).collect::<Vec<_>>(),
        [("200", "2 BYE"), ("487", "1 INVITE")]
    );
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    // when the flow is over, both are known
    receive(&mut bench, &incoming("BYE", 2, "1", &to));
    assert_eq!(one(&mut bench), answers[0]);
    receive(&mut bench, &incoming("BYE", 9, "1", &to));
    assert_eq!(status(&one(&mut bench)), "481");
}

#[test]
fn a_server_that_wants_ever_longer_lifetimes_is_asked_twice() {
    let mut bench = bench_of(0, Params { expires: Interval::ms(30_000), ..Params::default() });
    begin(&mut bench);
    let first = one(&mut bench);
    receive(&mut bench, &response(&first, 423, "s", "Min-Expires: 90\r\n"));
    let second = one(&mut bench);
    receive(&mut bench, &response(&second, 423, "s", "Min-Expires: 180\r\n"));
    assert!(sent(&mut bench).is_empty(), "a third request");
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert_eq!(["lifetimes_raised", "lifetimes_refused"].map(|name| counter(&bench, name)), [1, 1]);
    assert!(bench.examples[0].contains("423 again"), "{:?}", bench.examples);
    assert_eq!(counter(&bench, "registrations_ineffective"), 1);
}

#[test]
fn a_session_interval_that_is_too_small_is_asked_for_again_once() {
    let headers = [("Session-Expires", "90"), ("Supported", "timer")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let scenario = Scenario::Preset(Preset::Call);
    let mut bench = bench_of(0, Params { scenario, headers, ..Params::default() });
    begin(&mut bench);
    let first = one(&mut bench);
    assert_eq!(value(&first, "Session-Expires"), "90");
    receive(&mut bench, &response(&first, 422, "s", "Min-SE: 1800;x=y\r\n"));
    let said = sent(&mut bench);
    assert!(said[0].starts_with("ACK "), "{said:?}");
    let second = &said[1];
    assert_eq!(
        ["Session-Expires", "Min-SE", "CSeq"].map(|name| value(second, name)),
        ["1800", "1800", "2 INVITE"]
    );
    assert_eq!((second.matches("Session-Expires").count(), value(second, "Supported")), (1, "timer"));
    receive(&mut bench, &response(second, 422, "s", "Min-SE: 3600\r\n"));
    assert!(one(&mut bench).starts_with("ACK "), "and no third INVITE");
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert_eq!(["lifetimes_raised", "lifetimes_refused"].map(|name| counter(&bench, name)), [1, 1]);
    assert!(bench.examples[0].contains("422 again"), "{:?}", bench.examples);
    // the next flow begins with what the scenario says
    begin(&mut bench);
    assert_eq!(value(&one(&mut bench), "Session-Expires"), "90");
}

#[test]
fn steps_that_go_back_on_each_refusal_end_after_ten_times() {
    for (status, more, why) in [
        (302, "Contact: <sip:b@10.0.0.9>\r\n", "redirected over 10 times"),
        (503, "Retry-After: 5\r\n", "refused over 10 times without a pause"),
        (422, "", "refused over 10 times without a pause"),
    ] {
        let steps = format!(
            r#"[{{"label": "again"}}, {{"send": {{"method": "INVITE"}}}}, {{"expect_any": [{{"status": {status}, "then": "again"}}, {{"status": 200}}]}}]"#
        );
        let steps: Vec<Step> = serde_json::from_str(&steps).expect("steps");
        let mut bench = bench_of(0, Params { scenario: Scenario::Steps(steps), ..Params::default() });
        begin(&mut bench);
        let mut asked = 0;
        while bench.end.is_none() {
            let said = sent(&mut bench);
            let invite = said.iter().find(|one| one.starts_with("INVITE ")).expect("an INVITE");
            receive(&mut bench, &response(invite, status, "s", more));
            asked += 1;
            assert!(asked <= 11, "{status}");
        }
        assert_eq!((bench.end, asked), (Some(FlowEnd::Failed), 11), "{status}");
        assert_eq!(bench.cause.expect("a cause").detail.to_string(), why);
    }
}

#[test]
fn a_refusal_says_when_the_request_may_come_again() {
    let mut bench = bench(Preset::Options);
    begin(&mut bench);
    let options = one(&mut bench);
    receive(&mut bench, &response(&options, 503, "s", "Retry-After: 18 (in a moment)\r\n"));
    assert_eq!((bench.end, sent(&mut bench).len()), (Some(FlowEnd::Failed), 0), "it is not sent again");
    assert!(
        bench.examples[0].contains("503") && bench.examples[0].contains("Retry-After: 18 s"),
        "{:?}",
        bench.examples
    );
}

#[test]
fn a_lifetime_that_grows_is_asked_for_twice_also_with_a_challenge_between() {
    let password = Some("secret".to_owned());
    let params = Params { password, expires: Interval::ms(30_000), ..Params::default() };
    let mut bench = bench_of(0, params);
    begin(&mut bench);
    let first = one(&mut bench);
    receive(&mut bench, &response(&first, 423, "s", "Min-Expires: 90\r\n"));
    let second = one(&mut bench);
    let challenge = "WWW-Authenticate: Digest realm=\"example\", nonce=\"abc\", qop=\"auth\"\r\n";
    receive(&mut bench, &response(&second, 401, "s", challenge));
    let third = one(&mut bench);
    receive(&mut bench, &response(&third, 423, "s", "Min-Expires: 180\r\n"));
    assert!(sent(&mut bench).is_empty(), "a fourth request");
    assert_eq!(bench.end, Some(FlowEnd::Failed));
}

#[test]
fn a_response_of_another_request_is_malformed_and_answers_nothing() {
    let mut bench = bench_of(0, Params::default());
    begin(&mut bench);
    let request = one(&mut bench);
    let good = response(&request, 200, "s", "");
    let call_id = format!("Call-ID: {}", value(&request, "Call-ID"));
    let (_, tag) = value(&request, "From").split_once(";tag=").expect("a tag");
    let wrong = [
        good.replace(&call_id, "Call-ID: another"),
        good.replace(&format!(";tag={tag}"), ";tag=another"),
        good.replace("CSeq: 1 ", "CSeq: 7 "),
    ];
    for (number, bad) in wrong.iter().enumerate() {
        assert_ne!(*bad, good);
        receive(&mut bench, bad);
        assert_eq!(bench.end, None, "{bad}");
        assert_eq!(counter(&bench, "malformed_messages"), number as u64 + 1);
    }
    receive(&mut bench, &good);
    assert_eq!(bench.end, Some(FlowEnd::Completed));
}

#[test]
fn a_lifetime_that_is_too_short_is_asked_for_again() {
    let mut bench = bench_of(0, Params { expires: Interval::ms(30_000), ..Params::default() });
    begin(&mut bench);
    let first = one(&mut bench);
    bench.now = Time(20 * MS);
    receive(&mut bench, &response(&first, 423, "s", "Min-Expires: 90\r\n"));
    let second = one(&mut bench);
    assert_eq!((value(&first, "Expires"), value(&second, "Expires")), ("30", "90"));
    assert_eq!((value(&second, "CSeq"), value(&second, "Call-ID")), ("2 REGISTER", value(&first, "Call-ID")));
    // a server that asks for no more than it got rejects it
    receive(&mut bench, &response(&second, 423, "s", "Min-Expires: 90\r\n"));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    bench.end = None;
    begin(&mut bench);
    let third = one(&mut bench);
    assert_eq!(value(&third, "Expires"), "90", "it is known now");
    bench.now = bench.now + Duration::from_millis(50);
    let contact = format!("Contact: {};expires=90\r\n", value(&third, "Contact"));
    receive(&mut bench, &response(&third, 200, "s", &contact));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    let counted = ["registrations", "registrations_accepted", "registrations_ineffective"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [2, 1, 1]);
}
