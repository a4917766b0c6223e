//! Scenarios of one's own: branches, captured values, waits and jumps.

use super::*;

#[test]
fn steps_of_ones_own_branch_on_what_comes() {
    let steps: Vec<Step> = serde_json::from_value(serde_json::json!([
        {"send": {"method": "OPTIONS", "headers": {"X-Number": "{seq}"}}},
        {"expect_any": [{"status": 200, "then": "good"}, {"status": "4xx"}]},
        {"send": {"method": "MESSAGE", "body": "bad"}},
        {"goto": "end"},
        {"label": "good"},
        {"send": {"method": "MESSAGE", "body": "good"}},
        {"label": "end"},
        {"expect": {"status": "2xx"}},
    ]))
    .expect("steps");
    for (status, body) in [(200, "good"), (404, "bad")] {
        let mut bench = bench_of(0, Params { scenario: Scenario::Steps(steps.clone()), ..Params::default() });
        begin(&mut bench);
        let options = one(&mut bench);
        assert_eq!(value(&options, "X-Number"), "0");
        receive(&mut bench, &response(&options, status, "s", ""));
        let message = one(&mut bench);
        assert!(message.ends_with(body), "{message}");
        receive(&mut bench, &response(&message, 202, "s", ""));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
    }
}

#[test]
fn what_is_wrong_with_steps_is_named() {
    let wrong = |steps: serde_json::Value| {
        let steps: Vec<Step> = serde_json::from_value(steps).expect("steps");
        let params = Params { scenario: Scenario::Steps(steps), ..Params::default() };
        params.check().expect_err("wrong").to_string()
    };
    let cases = [
        (serde_json::json!([]), "scenario.steps: is empty"),
        (
            serde_json::json!([{"send": {"method": "invite"}}]),
            "steps[0].send.method: invite is no method of SIP; did you mean INVITE?",
        ),
        (serde_json::json!([{"goto": "x"}]), "steps[0].goto: no label is called x"),
        (
            serde_json::json!([{"repeat": {"count": 9, "steps": [{"repeat": {"count": 9, "steps": [{"label": "x"}]}}]}}]),
            "they send, expect and pause nothing",
        ),
        (serde_json::json!([{"expect": {}}]), "steps[0].expect: names not exactly one message"),
        (serde_json::json!([{"send": {"method": "INVITE", "headers": {"Via": "x"}}}]), "headers.Via"),
        (serde_json::json!([{"send": {"method": "INVITE", "headers": {"X": "a\r\nb"}}}]), "line break"),
    ];
    for (steps, word) in cases {
        let told = wrong(steps);
        assert!(told.contains(word), "{told}: {word}");
    }
}

fn steps(yaml: &str) -> Bench<UserAgent> {
    let steps: Vec<Step> = serde_json::from_str(yaml).expect("steps");
    let mut params = Params { scenario: Scenario::Steps(steps), ..Params::default() };
    params.set_data(&protocol::data::Data::default());
    bench_of(0, params)
}

const BRANCHING: &str = r#"[
    {"send": {"method": "OPTIONS"}},
    {"expect": {"status": "200", "capture": {"word": {"header": "X-Word"}, "last": {"header": "X-Word", "regex": "[^ ]*$"}}}},
    {"goto": {"label": "none", "absent": "word"}},
    {"send": {"method": "MESSAGE", "headers": {"X-Back": "{response.word}/{response.last}"}, "body": "{response.last}"}},
    {"goto": "end"},
    {"label": "none"},
    {"send": {"method": "INFO"}},
    {"label": "end"},
    {"expect": {"status": "200"}}
]"#;

#[test]
fn a_value_of_a_response_goes_into_the_next_request_and_decides_the_way() {
    for (field, method) in [("X-Word: one two\r\n", "MESSAGE"), ("", "INFO")] {
        let mut bench = steps(BRANCHING);
        begin(&mut bench);
        let options = one(&mut bench);
        receive(&mut bench, &response(&options, 200, "t", field));
        let next = one(&mut bench);
        assert!(next.starts_with(method), "{next}");
        if method == "MESSAGE" {
            assert_eq!(value(&next, "X-Back"), "one two/two");
            assert!(next.ends_with("\r\n\r\ntwo"), "{next}");
        }
    }
}

#[test]
fn a_required_value_that_is_not_there_fails_the_flow() {
    let text = r#"[{"send": {"method": "OPTIONS"}},
        {"expect": {"status": "200", "capture": {"v": {"regex": "never", "required": true}}}}]"#;
    let mut bench = steps(text);
    begin(&mut bench);
    let options = one(&mut bench);
    receive(&mut bench, &response(&options, 200, "t", ""));
    assert_eq!(bench.tally_of(Phase::Measure).counts.failures[Failure::Rejected as usize], 1);
}

#[test]
fn a_wait_that_is_over_goes_on_at_its_label() {
    let text = r#"[{"send": {"method": "OPTIONS"}},
        {"expect": {"status": "200", "timeout": "100ms", "on_timeout": "late"}}, {"goto": "end"},
        {"label": "late"}, {"send": {"method": "MESSAGE"}}, {"label": "end"}, {"expect": {"status": "200"}}]"#;
    let mut bench = steps(text);
    begin(&mut bench);
    sent(&mut bench);
    after(&mut bench, 100 * MS);
    assert!(one(&mut bench).starts_with("MESSAGE"));
}

#[test]
fn a_jump_by_chance_is_taken_as_often_as_it_says() {
    let text = r#"[{"goto": {"label": "b", "chance": 0.25}}, {"send": {"method": "OPTIONS"}}, {"goto": "end"},
        {"label": "b"}, {"send": {"method": "MESSAGE"}}, {"label": "end"}, {"expect": {"status": "200"}}]"#;
    let mut taken = 0;
    let mut bench = steps(text);
    begin(&mut bench);
    for _ in 0..400 {
        let request = one(&mut bench);
        taken += u32::from(request.starts_with("MESSAGE"));
        receive(&mut bench, &response(&request, 200, "t", ""));
        bench.call(|device, cx| device.start(cx));
    }
    assert!((60..140).contains(&taken), "{taken}");
}

#[test]
fn conditions_of_jumps_are_checked() {
    for (goto, says) in [
        (r#"{"label": "a", "given": "x"}"#, "no capture is called x"),
        (r#"{"label": "a", "chance": 2}"#, "2 is no probability"),
        (r#"{"label": "a", "chance": 0.5, "given": "x"}"#, "has several conditions"),
    ] {
        let text = format!(r#"[{{"label": "a"}}, {{"goto": {goto}}}]"#);
        let steps: Vec<Step> = serde_json::from_str(&text).expect("steps");
        let params = Params { scenario: Scenario::Steps(steps), ..Params::default() };
        let said = params.check().expect_err(says).to_string();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_bye_to_a_rejected_call_is_taken_where_a_step_waits_for_it() {
    let text = r#"[{"expect": {"request": "INVITE"}}, {"answer": {"status": 403}},
        {"expect": {"request": "BYE"}}, {"answer": {"status": 200}}]"#;
    let mut bench = steps(text);
    begin(&mut bench);
    receive(&mut bench, &incoming("INVITE", 1, "1", "<sip:b@x>"));
    let rejected = one(&mut bench);
    assert!(rejected.starts_with("SIP/2.0 403 "), "{rejected}");
    let to = value(&rejected, "To");
    receive(&mut bench, &incoming("ACK", 1, "1", to));
    receive(&mut bench, &incoming("BYE", 2, "1", to));
    let answer = one(&mut bench);
    assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    receive(&mut bench, &incoming("BYE", 3, "1", to));
    let again = one(&mut bench);
    assert!(again.starts_with("SIP/2.0 481 "), "{again}");
}

#[test]
fn a_callee_without_a_user_is_the_server() {
    let params = Params {
        scenario: Scenario::Preset(Preset::Options),
        callee: String::new(),
        domain: Some("example.net".into()),
        ..Params::default()
    };
    let mut bench = bench_of(0, params);
    begin(&mut bench);
    let options = one(&mut bench);
    assert!(options.starts_with("OPTIONS sip:example.net SIP/2.0\r\n"), "{options}");
    assert_eq!(value(&options, "To"), "<sip:example.net>");
}

#[test]
fn values_are_made_and_looked_at() {
    let text = |at_most: u32| {
        format!(
            r#"[{{"send": {{"method": "OPTIONS"}}}},
            {{"expect": {{"status": 200, "capture": {{"cseq": {{"header": "CSeq"}}}}}}}},
            {{"set": {{"name": "next", "value": "{{response.cseq}}", "regex": "[0-9]+", "add": 41}}}},
            {{"assert": {{"value": "{{response.next}}", "is": "42", "matches": "^[0-9]+$", "at_most": {at_most}}}}},
            {{"send": {{"method": "MESSAGE", "body": "{{response.next}}"}}}}, {{"expect": {{"status": 200}}}}]"#
        )
    };
    let mut bench = steps(&text(42));
    begin(&mut bench);
    let options = one(&mut bench);
    receive(&mut bench, &response(&options, 200, "s", ""));
    let message = one(&mut bench);
    assert!(message.ends_with("42"), "{message}");
    receive(&mut bench, &response(&message, 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));

    let mut bench = steps(&text(41));
    begin(&mut bench);
    let options = one(&mut bench);
    receive(&mut bench, &response(&options, 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Failed), "the condition does not hold");
    assert!(sent(&mut bench).is_empty());
    let said = &bench.examples[0];
    assert!(said.contains(r#"steps[3]: the value "42" is not at most 41"#), "{said}");
}
