use super::*;
use proptest::prelude::*;

const ID: ConnectionId = ConnectionId { slot: 0, generation: 0 };

fn settings(script: &str) -> Settings {
    let script: serde_json::Value = serde_json::from_str(script).expect(script);
    let all = serde_json::json!({"protocol": "script", "listen": "127.0.0.1:9", "script": script});
    serde_json::from_value(all).expect("settings")
}

/// A server, and what it asks for.
struct Bench(ScriptServer, Output);

impl Bench {
    fn new(script: &str) -> Self {
        let settings = settings(script);
        settings.check().expect(script);
        Self(ScriptServer::new(&settings), Output::default())
    }

    fn open(&mut self) -> String {
        self.0.opened(ID, &mut self.1);
        self.said().0
    }

    fn feed(&mut self, bytes: &[u8]) -> String {
        assert_eq!(self.0.received(ID, bytes, &mut self.1), bytes.len());
        self.said().0
    }

    /// What was sent, whether it closes, and when it is to be called.
    fn said(&mut self) -> (String, bool, Option<u64>) {
        let (sent, closed, wakes) = self.1.take();
        let text = sent.into_iter().map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).collect();
        (text, !closed.is_empty(), wakes.last().map(|(_, at)| *at))
    }

    fn count(&self, name: &str) -> u64 {
        self.0.counters()[name]
    }
}

#[test]
fn a_mail_server_is_played() {
    let steps = r#"{"steps": [{"send": "220 hello {device}\\r\\n"}, {"expect_regex": "HELO [^\n]*\n"}, {"send": "250 ok\\r\\n"},
        {"repeat": {"count": 2, "steps": [{"expect": "NOOP\\r\\n"}, {"send": "250 {seq}\\r\\n"}]}},
        {"expect": "QUIT"}, {"send": "221 bye"}]}"#;
    let mut mail = Bench::new(steps);
    assert_eq!(mail.open(), "220 hello 0\r\n");
    assert_eq!(mail.feed(b"HELO x"), "", "not whole");
    assert_eq!(mail.feed(b"\r\nNOOP\r\nNO"), "250 ok\r\n250 2\r\n", "what came after it is kept");
    assert_eq!(mail.feed(b"OP\r\n"), "250 3\r\n");
    assert_eq!(mail.0.received(ID, b"QUIT\r\n", &mut mail.1), 6);
    let (text, closes, _) = mail.said();
    assert_eq!((text.as_str(), closes), ("221 bye", true));
    let counts =
        ["requests", "responses", "scripts_completed", "protocol_errors"].map(|name| mail.count(name));
    assert_eq!(counts, [4, 5, 1, 0]);
    mail.0.closed(ID, &mut mail.1);
    assert_eq!((mail.count("open_connections"), mail.open().as_str()), (0, "220 hello 1\r\n"));
}

#[test]
fn waits_are_timed_and_one_timer_waits_for_each_connection() {
    let mut slow = Bench::new(
        r#"{"timeout": "1s", "steps": [{"repeat": {"count": 0, "steps": [{"expect": "a"}, {"delay": "5ms"}, {"send": "b"}]}}]}"#,
    );
    slow.open();
    for round in 0..3_u64 {
        slow.1.now = round * 10_000_000;
        slow.0.received(ID, b"a", &mut slow.1);
        let at = slow.1.now + 5_000_000;
        assert_eq!(slow.said(), (String::new(), false, Some(at)));
        slow.1.now = at;
        slow.0.timer(ID, &mut slow.1);
        assert_eq!(slow.said(), ("b".into(), false, Some(at + 1_000_000_000)));
    }
    slow.1.now += 1_000_000_000;
    slow.0.timer(ID, &mut slow.1);
    assert!(slow.said().1 && slow.count("expect_timeouts") == 1);
    // without a limit there is nothing to be called for
    let mut patient = Bench::new(r#"{"steps": [{"expect": "a"}]}"#);
    patient.0.opened(ID, &mut patient.1);
    assert_eq!(patient.said(), (String::new(), false, None));
}

#[test]
fn replies_are_left_out_as_asked_and_floods_end() {
    let echo =
        r#"{"steps": [{"repeat": {"count": 0, "steps": [{"expect": "a"}, {"send": "b"}, {"send": "c"}]}}]}"#;
    let mut settings = settings(echo);
    settings.drop_share = 1.0;
    let mut mute = Bench(ScriptServer::new(&settings), Output::default());
    mute.open();
    assert_eq!(mute.feed(b"aaa"), "");
    assert_eq!((mute.count("requests"), mute.count("dropped_responses"), mute.count("responses")), (3, 3, 0));
    let mut flooded = Bench::new(echo);
    flooded.open();
    (0..3).for_each(|_| _ = flooded.0.received(ID, &[b'x'; 60_000], &mut flooded.1));
    assert!(flooded.said().1 && flooded.count("protocol_errors") == 1);
    // a script without an end does not keep others waiting
    let mut endless = Bench::new(r#"{"steps": [{"repeat": {"count": 1000000, "steps": [{"send": "x"}]}}]}"#);
    endless.0.opened(ID, &mut endless.1);
    let (text, _, wake) = endless.said();
    assert_eq!((text.len() <= STEPS_PER_CALL, wake), (true, Some(0)));
}

#[test]
fn wrong_scripts_are_told() {
    for (script, told) in [
        (r#"{"steps": []}"#, "steps: is empty"),
        (r#"{"steps": [{"expect": ""}]}"#, "steps[0].expect"),
        (r#"{"steps": [{"repeat": {"count": 0, "steps": [{"send": "x"}]}}]}"#, "never ends"),
        (r#"{"timeout": "0s", "steps": [{"send": "x"}]}"#, "timeout: is zero"),
    ] {
        let wrong = settings(script).check().expect_err(script);
        assert!(wrong.at == "script" && wrong.what.contains(told), "{wrong}");
    }
    let mut none = settings(r#"{"steps": [{"send": "x"}]}"#);
    none.script = None;
    assert_eq!(none.check().expect_err("no script").at, "script");
}

proptest! {
    #[test]
    fn whatever_comes_is_survived(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..50)) {
        let mut server = Bench::new(
            r#"{"timeout": "1ms", "steps": [{"repeat": {"count": 0, "steps": [{"expect_regex": "[a-z]+\\d"}, {"send": "ok"}, {"delay": "1ms"}]}}]}"#,
        );
        server.open();
        for piece in pieces {
            server.1.now += 400_000;
            server.feed(&piece);
            server.0.timer(ID, &mut server.1);
            server.said();
        }
        server.0.closed(ID, &mut server.1);
        prop_assert_eq!(server.count("open_connections"), 0);
    }
}
