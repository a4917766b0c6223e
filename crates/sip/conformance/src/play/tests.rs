use crate::{Request, Verdict};
use serde_json::{Value, json};
use sip_core::Message;
use std::net::UdpSocket;
use std::time::Duration;

/// A server that answers each request with the next of these responses.
fn server(responses: &'static [(u16, &'static str)]) -> Value {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        for (code, header) in responses {
            let mut buffer = [0; 4096];
            let Ok((length, source)) = socket.recv_from(&mut buffer) else { return };
            let request = Message::read(&buffer[..length]).unwrap();
            let mut response = Message::response(&request, *code, "Reason", Some("tag"));
            if let Some((name, value)) = header.split_once(": ") {
                response.push_named(name, value);
            }
            socket.send_to(&response.to_bytes(), source).unwrap();
        }
    });
    json!(address)
}

fn play(
    responses: &'static [(u16, &'static str)],
    password: Option<&str>,
    steps: Value,
) -> (Verdict, String) {
    play_at("required", responses, password, steps)
}

fn play_at(
    level: &str,
    responses: &'static [(u16, &'static str)],
    password: Option<&str>,
    steps: Value,
) -> (Verdict, String) {
    let request = json!({
        "server": server(responses),
        "domain": "example.test",
        "user": {"name": "alice", "password": password},
        "tests": [{
            "id": "X", "title": "x", "role": "registrar", "clause": "none", "level": level, "agents": ["uac"], "steps": steps,
        }],
    });
    let request: Request = serde_json::from_value(request).unwrap();
    let outcome = crate::run(&request, |_| ()).unwrap().tests.swap_remove(0);
    assert!(!outcome.ladder.iter().any(|arrow| arrow.text.contains("secret")), "{outcome:?}");
    (outcome.verdict, outcome.reason)
}

fn register(status: &str, check: &[&str]) -> Value {
    json!([
        {"uac sends": "REGISTER sip:{domain}\nContact: <{uac.contact}>"},
        {"uac expects": status, "within": "300ms", "check": check},
    ])
}

const CHALLENGE: (u16, &str) = (401, "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"");

#[test]
fn an_expected_response_passes() {
    let result = play(&[(200, "")], None, register("200", &["To.tag = tag", "count(Contact) = 0"]));
    assert_eq!(result, (Verdict::Pass, String::new()));
}

#[test]
fn another_response_or_an_unmet_check_fails() {
    let (verdict, reason) = play(&[(500, "")], None, register("200", &[]));
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Fail, "uac expected 200; received 500 Reason (REGISTER)")
    );
    let (verdict, reason) = play(&[(200, "")], None, register("200", &["Contact is present"]));
    let expected = "uac received 200 Reason (REGISTER): expected Contact is present; Contact is absent";
    assert_eq!((verdict, reason.as_str()), (Verdict::Fail, expected));
}

#[test]
fn what_is_recommended_and_not_met_is_a_warning() {
    let steps = json!([
        {"uac sends": "REGISTER sip:{domain}\nContact: <{uac.contact}>"},
        {"uac expects": "200", "within": "300ms", "recommended": ["Contact is present", "To.tag = tag"]},
    ]);
    let (verdict, reason) = play(&[(200, "")], None, steps.clone());
    let expected = "uac received 200 Reason (REGISTER): expected Contact is present; Contact is absent";
    assert_eq!((verdict, reason.as_str()), (Verdict::Warning, expected));
    assert_eq!(play(&[(500, "")], None, steps.clone()).0, Verdict::Fail, "what is demanded comes first");
    assert_eq!(play(&[(200, "Contact: <sip:a@b>")], None, steps), (Verdict::Pass, String::new()));
    assert_eq!(play_at("recommended", &[(500, "")], None, register("200", &[])).0, Verdict::Warning);
    assert_eq!(play_at("recommended", &[], None, register("200", &[])).0, Verdict::Inconclusive);
}

#[test]
fn a_silent_server_is_not_blamed() {
    let (verdict, reason) = play(&[], None, register("200", &[]));
    assert_eq!((verdict, reason.as_str()), (Verdict::Inconclusive, "the server did not answer at all"));
}

#[test]
fn a_challenge_is_answered_where_there_is_a_password() {
    let (verdict, _) = play(&[CHALLENGE, (200, "")], Some("secret"), register("200", &[]));
    assert_eq!(verdict, Verdict::Pass);
    let (verdict, reason) = play(&[CHALLENGE], None, register("200", &[]));
    assert_eq!(verdict, Verdict::Inconclusive, "{reason}");
    let (verdict, _) = play(&[CHALLENGE, CHALLENGE], Some("secret"), register("200", &[]));
    assert_eq!(verdict, Verdict::Fail);
}

#[test]
fn credentials_whose_nonce_was_too_old_are_given_again_once() {
    const STALE: (u16, &str) =
        (401, "WWW-Authenticate: Digest realm=\"r\", nonce=\"o\", stale=TRUE, qop=\"auth\"");
    let play =
        |answers: &'static [(u16, &'static str)]| play(answers, Some("secret"), register("200", &[])).0;
    assert_eq!(play(&[CHALLENGE, STALE, (200, "")]), Verdict::Pass);
    assert_eq!(play(&[CHALLENGE, STALE, STALE, (200, "")]), Verdict::Fail, "it would go on for ever");
}

#[test]
fn wrong_files_are_refused() {
    for (step, expected) in [
        (json!({"uas sends": "X"}), "uas is none of the test's agents"),
        (json!({"uac sends": "X", "colour": "red"}), "colour is unknown here"),
        (json!({"uac expects": "nonsense"}), "\"nonsense\" is no method, status code, class or final"),
        (json!({"uac expects": "200", "check": ["x"]}), "\"x\" is no condition"),
        (json!({"wait": "5"}), "\"5\" is no duration such as 500ms, 2s or 64T1"),
        (json!({"uac": "sends"}), "a step is `wait` or `AGENT sends`, `AGENT expects` and so on"),
    ] {
        let request = json!({
            "server": "127.0.0.1:9", "domain": "x", "user": {"name": "a"},
            "tests": [{"id": "X", "title": "", "role": "", "clause": "", "agents": ["uac"], "steps": [step]}],
        });
        let request: Request = serde_json::from_value(request).unwrap();
        let error = crate::run(&request, |_| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("X step 1: {expected}"));
    }
}
