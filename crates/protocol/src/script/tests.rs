use super::compile::STEPS_MAX;
use super::*;
use crate::describe::{ModelKind, ModelParams};
use crate::meter::Phase;
use crate::model::{FlowEnd, Link};
use crate::target::Target;
use crate::testing::{Bench, assault};
use proptest::prelude::*;

fn config(json: &str, scheme: usize) -> Arc<Config> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[scheme], host: "h".into(), port: 25, ipv6: false };
    Arc::new(params.compile(&target).expect(json))
}

fn tcp(steps: &str) -> Bench<Device> {
    Bench::new(config(&format!(r#"{{"steps": {steps}}}"#), 0).device(0))
}

fn udp(steps: &str) -> Bench<Device> {
    Bench::new(config(&format!(r#"{{"steps": {steps}}}"#), 2).device(0))
}

fn problem(steps: &str) -> String {
    let json = format!(r#"{{"steps": {steps}}}"#);
    let params: Params = serde_json::from_str(&json).expect(&json);
    params.check().expect_err(&json).to_string()
}

#[test]
fn a_device_is_small() {
    assert!(std::mem::size_of::<Device>() <= 104, "{}", std::mem::size_of::<Device>());
}

#[test]
fn a_mail_server_is_talked_to() {
    let mut mail = tcp(r#"[{"expect": "220 "}, {"expect_regex": "\n"}, {"send": "HELO d{device}\\r\\n"},
            {"expect_regex": "(?m)^250 [^\n]*\r\n"}, {"delay": "10ms"}, {"send": "QUIT\\r\\n"}, {"expect_hex": "3232 31"}]"#);
    mail.start();
    mail.run_to_ms(1);
    mail.connected();
    mail.feed(b"220 mail.example ready\r\n");
    assert_eq!(mail.sent_text(), "HELO d0\r\n");
    mail.run_to_ms(5);
    mail.feed(b"250-first\r\n250 last\r\n");
    mail.run_to_ms(14);
    assert_eq!(mail.sent_text(), "");
    mail.run_to_ms(15);
    assert_eq!(mail.sent_text(), "QUIT\r\n");
    mail.run_to_ms(18);
    mail.feed(b"221 bye");
    assert_eq!((mail.end, mail.link), (Some(FlowEnd::Completed), Link::Close));
    assert_eq!((mail.delay(CONNECT), mail.delay(STEP), mail.delay(FLOW)), ((1, 1), (2, 4), (1, 18)));
    let counts = mail.measured();
    assert_eq!((counts.messages_sent, counts.messages_delivered, counts.messages_received), (2, 2, 2));
}

#[test]
fn what_came_during_a_delay_is_there_after_it() {
    let mut early = tcp(r#"[{"send": "a"}, {"delay": "5ms"}, {"expect": "b"}]"#);
    early.start_connected();
    early.feed(b"b");
    early.run_to_ms(4);
    assert_eq!(early.end, None);
    early.run_to_ms(5);
    assert_eq!(early.end, Some(FlowEnd::Completed));
}

#[test]
fn repeats_count_nest_and_number_their_sends() {
    let mut loops = tcp(
        r#"[{"repeat": {"count": 2, "steps": [{"repeat": {"count": 3, "steps": [{"send": "{seq}"}]}}, {"send": ";"}]}},
            {"send": "."}]"#,
    );
    loops.start_connected();
    assert_eq!((loops.sent_text().as_str(), loops.end), ("012;456;.", Some(FlowEnd::Completed)));
    // more than one turn's worth of steps
    let mut long = tcp(r#"[{"repeat": {"count": 1000, "steps": [{"send": "x"}]}}]"#);
    long.start_connected();
    assert_eq!(long.end, None);
    long.run_to_ms(0);
    assert_eq!((long.sent().len(), long.end), (1000, Some(FlowEnd::Completed)));
}

#[test]
fn an_endless_repeat_ends_with_the_load_and_says_farewell() {
    let mut echo =
        tcp(r#"[{"repeat": {"count": 0, "steps": [{"send": "a"}, {"expect": "b"}]}}, {"send": "bye"}]"#);
    echo.start_connected();
    (0..10).for_each(|_| echo.feed(b"b"));
    echo.stop();
    assert_eq!(echo.end, None, "one answer is on its way");
    echo.sent();
    echo.feed(b"b");
    assert_eq!((echo.sent_text().as_str(), echo.end), ("bye", Some(FlowEnd::Completed)));
    assert_eq!(echo.measured().messages_delivered, 11);
    assert_eq!(echo.counts(Phase::Drain).messages_sent, 0);
}

#[test]
fn each_wait_has_its_limit() {
    let steps = r#"[{"timeout": "100ms"}, {"send": "a"}, {"expect": "b"}]"#;
    let mut silent = tcp(steps);
    silent.start_connected();
    silent.run_to_ms(99);
    assert_eq!(silent.end, None);
    silent.run_to_ms(100);
    assert_eq!((silent.end, silent.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 1));
    let mut other = tcp(steps);
    other.start_connected();
    other.feed(b"no");
    other.run_to_ms(100);
    assert_eq!((other.end, other.failures(Failure::Rejected)), (Some(FlowEnd::Failed), 1));
    assert_eq!(other.examples, ["not what step 1 expects: no"]);
    let mut never = tcp(steps);
    never.start();
    never.run_to_ms(5000);
    assert_eq!((never.end, never.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 1));
    let mut lost = tcp(steps);
    lost.start_connected();
    lost.closed(Failure::Closed);
    assert_eq!((lost.end, lost.excused), (Some(FlowEnd::Failed), false));
}

#[test]
fn a_server_may_close_after_its_goodbye() {
    let goodbye = r#"{"send": "QUIT"}, {"expect": "221"}, {"delay": "1s"}"#;
    let repeat = |count: u32| format!(r#"[{{"repeat": {{"count": {count}, "steps": [{goodbye}]}}}}]"#);
    for (steps, ended) in [
        (format!("[{goodbye}]"), FlowEnd::Completed),
        (repeat(1), FlowEnd::Completed),
        (repeat(2), FlowEnd::Failed),
        (repeat(0), FlowEnd::Failed),
        (format!(r#"[{goodbye}, {{"send": "again"}}]"#), FlowEnd::Failed),
        (format!(r#"[{goodbye}, {{"expect": "more"}}]"#), FlowEnd::Failed),
    ] {
        for why in [Failure::Closed, Failure::Reset] {
            let mut mail = tcp(&steps);
            mail.start_connected();
            mail.feed(b"221 bye");
            assert_eq!(mail.end, None, "{steps}");
            mail.closed(why);
            assert_eq!((mail.end, mail.excused), (Some(ended), ended == FlowEnd::Completed), "{steps}");
        }
        let mut early = tcp(&steps);
        early.start_connected();
        early.closed(Failure::Closed);
        assert_eq!((early.end, early.excused), (Some(FlowEnd::Failed), false), "no goodbye: {steps}");
    }
}

#[test]
fn it_waits_while_it_expects() {
    let mut talk =
        tcp(r#"[{"delay": "5ms"}, {"send": "a"}, {"expect": "b"}, {"delay": "1s"}, {"send": "c"}]"#);
    talk.start_connected();
    assert_eq!(talk.model.waiting_since(), Time::NEVER);
    talk.run_to_ms(9);
    assert_eq!(talk.model.waiting_since(), Time(5_000_000));
    talk.feed(b"b");
    assert_eq!(talk.model.waiting_since(), Time::NEVER);
}

#[test]
fn what_is_waited_for_to_the_end_is_unanswered() {
    let steps = r#"[{"timeout": "1h"}, {"send": "a"}, {"expect": "b"}, {"delay": "1h"}, {"send": "c"}]"#;
    for (answer, counted) in [("", 1), ("b", 0)] {
        let mut silent = tcp(steps);
        silent.window.measure = Time(1_000_000_000);
        silent.start_connected();
        silent.feed(answer.as_bytes());
        silent.run_to_ms(2_000);
        silent.abandon();
        assert_eq!(silent.measured().failures[Failure::Unanswered as usize], counted, "{answer:?}");
    }
    let mut deaf = tcp(steps);
    deaf.start();
    deaf.abandon();
    assert_eq!(deaf.failures(Failure::Unanswered), 1, "the connection itself");
    // a datagram is of the phase that it was due in
    let mut sink = udp(steps);
    sink.window.measure = Time(1_000_000_000);
    sink.start();
    sink.run_to_ms(2_000);
    sink.abandon();
    assert_eq!(sink.counts(Phase::Warmup).failures[Failure::Unanswered as usize], 1);
}

#[test]
fn what_is_kept_has_a_limit() {
    let mut flood = tcp(r#"[{"expect": "b"}]"#);
    flood.start_connected();
    flood.feed(&vec![b'a'; KEPT_MAX]);
    assert_eq!(flood.end, None);
    flood.feed(b"a");
    assert_eq!((flood.end, flood.failures(Failure::Protocol)), (Some(FlowEnd::Failed), 1));
    let mut last = tcp(r#"[{"expect": "ab"}]"#);
    last.start_connected();
    last.feed(&vec![b'a'; KEPT_MAX]);
    last.feed(b"b");
    assert_eq!(last.end, Some(FlowEnd::Completed));
}

#[test]
fn over_udp_a_datagram_is_a_message() {
    let mut dns = udp(r#"[{"send": "one"}, {"send_hex": "7b 00ff"}, {"expect": "ok"}, {"expect": "ok"}]"#);
    dns.start();
    assert_eq!(dns.link, Link::Keep, "nothing to connect");
    assert_eq!(dns.sent(), b"one");
    dns.run_to_ms(0);
    assert_eq!(dns.sent(), [0x7b, 0, 0xff]);
    // two matches in one datagram are one; what does not match is passed over
    for bytes in [&b"ok ok"[..], b"o", b"k", b"", b"ok"] {
        assert_eq!(dns.end, None);
        dns.datagram(bytes);
    }
    assert_eq!((dns.end, dns.measured().messages_received), (Some(FlowEnd::Completed), 4));
    let mut early = udp(r#"[{"send": "a"}, {"delay": "5ms"}, {"expect": "b"}]"#);
    early.start();
    (0..3).for_each(|_| early.datagram(&[b'x'; 30_000]));
    assert_eq!(early.measured().messages_received, 1, "no room for the third");
    early.datagram(b"b");
    early.run_to_ms(5);
    assert_eq!(early.end, Some(FlowEnd::Completed));
}

#[test]
fn escapes_are_bytes() {
    let mut bytes = tcp(r#"[{"send": "\\x00\\xfF\\x7b\\t\\0\\\\{{"}, {"expect": "\\x7b\\r\\n"}]"#);
    bytes.start_connected();
    assert_eq!(bytes.sent(), b"\x00\xff{\t\0\\{");
    bytes.feed(b"{\r\n");
    assert_eq!(bytes.end, Some(FlowEnd::Completed));
}

#[test]
fn wrong_parameters_are_explained() {
    assert!(problem("[]").starts_with("steps: is empty"));
    assert!(problem(r#"[{"send": "{sqe}"}]"#).starts_with("steps[0].send: {sqe} is unknown; did you mean"));
    assert!(problem(r#"[{"send": "a"}, {"send": "\\q"}]"#).starts_with("steps[1].send: an unknown escape"));
    assert!(problem(r#"[{"send": "\\x1"}]"#).contains("two hexadecimal digits"));
    assert!(problem(r#"[{"send_hex": "abc"}]"#).contains("0a 1b 2c"));
    assert!(problem(r#"[{"send_hex": "zz"}]"#).contains("hexadecimal"));
    assert!(problem(r#"[{"expect": ""}]"#).starts_with("steps[0].expect: is empty"));
    assert!(problem(r#"[{"expect_regex": "a("}]"#).contains("unclosed group"));
    assert!(problem(r#"[{"expect_regex": "a*"}]"#).contains("nothing at all"));
    assert!(problem(r#"[{"expect_regex": "(a{1000}){1000}"}]"#).contains("size limit"));
    assert!(problem(r#"[{"timeout": "0s"}]"#).starts_with("steps[0].timeout"));
    let endless = r#"[{"repeat": {"count": 0, "steps": [{"send": "a"}, {"delay": "0s"}]}}]"#;
    assert!(problem(endless).starts_with("steps[0].repeat: never ends"));
    let inside = r#"[{"repeat": {"count": 1, "steps": [{"send": "}"}]}}]"#;
    assert!(problem(inside).starts_with("steps[0].repeat.steps[0].send"));
    let nested = |levels: usize| {
        let open = r#"[{"repeat": {"count": 1, "steps": "#.repeat(levels);
        format!(r#"{open}[{{"send": "a"}}]{}"#, "}}]".repeat(levels))
    };
    tcp(&nested(DEPTH_MAX));
    assert!(problem(&nested(DEPTH_MAX + 1)).contains("at most 4 levels"));
    let many = |n: usize| format!("[{}]", vec![r#"{"send": "a"}"#; n].join(","));
    tcp(&many(STEPS_MAX));
    assert!(problem(&many(STEPS_MAX + 1)).contains("at most 4096"));
}

proptest! {
    #[test]
    fn any_split_of_the_answer_gives_the_same(cuts in prop::collection::vec(1usize..9, 0..20)) {
        let mut talk = tcp(
            r#"[{"send": "a"}, {"expect": "aab"}, {"expect_regex": "[0-9]+;"}, {"expect": "end"}]"#,
        );
        talk.start_connected();
        let mut rest = &b"aaaaab some 12 34; more aab 7 enend"[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            talk.feed(piece);
            rest = after;
        }
        talk.feed(rest);
        prop_assert_eq!(talk.end, Some(FlowEnd::Completed));
        prop_assert_eq!((talk.measured().messages_delivered, talk.measured().messages_received), (1, 2));
    }

    #[test]
    fn nothing_that_comes_breaks_a_device(data in prop::collection::vec(any::<u8>(), 0..400), scheme in 0usize..3) {
        let json = r#"{"timeout": "20ms", "steps": [{"repeat": {"count": 0, "steps": [{"send": "a"},
            {"expect_regex": "[a-z]"}, {"expect_hex": "00"}, {"delay": "1ms"}, {"expect": "a"}]}}]}"#;
        assault(config(json, scheme).device(0), &data, KEPT_MAX);
    }
}
