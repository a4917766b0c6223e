//! TCP: for those who show the token, in time.

use crate::rpc::daemon::{Client, Daemon, TOKEN, error, request, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn nothing_is_answered_before_the_token_is_shown() {
    let (daemon, address) = Daemon::with_tcp();
    let mut client = Client::tcp(&address);
    for (method, params) in [
        ("run.status", json!({})),
        ("run.status", json!({"token": TOKEN})),
        ("control.hello", json!({})),
        ("control.hello", json!({"token": 7})),
        ("control.hello", json!({"token": &TOKEN[1..]})),
        ("control.hello", json!({"token": format!("{TOKEN}0")})),
    ] {
        let data = client.fails(method, params, -32006);
        assert_eq!(data["code"], "ND-104-13");
    }
    daemon.logged("no or a wrong token");
    assert_eq!(client.call("control.hello", json!({"token": TOKEN})), true);
    assert_eq!(client.get("run.status")["state"], "idle");
    // the next connection shows it again
    Client::tcp(&address).fails("run.status", json!({}), -32006);
    // the owner of the socket needs none
    assert_eq!(daemon.connect().get("run.status")["state"], "idle");
    assert!(!daemon.log().contains(TOKEN));
}

#[test]
fn the_token_cannot_be_guessed_at_length() {
    let (_daemon, address) = Daemon::with_tcp();
    let mut client = Client::tcp(&address);
    for _ in 0..10 {
        client.fails("control.hello", json!({"token": "0123456789abcdef0124"}), -32006);
    }
    assert_eq!(client.line(), None);
}

#[test]
fn who_does_not_show_the_token_in_time_is_hung_up_on() {
    let (daemon, address) = Daemon::with_tcp();
    let mut slow = Client::tcp(&address);
    let mut known = Client::tcp(&address);
    known.call("control.hello", json!({"token": TOKEN}));
    let began = Instant::now();
    // one byte now and then is no progress
    while began.elapsed() < Duration::from_secs(6) && slow.try_send(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(250));
    }
    let data = error(&slow.line().unwrap(), -32006);
    assert!(data["what"].as_str().unwrap().contains("within 5 s"));
    assert_eq!(slow.line(), None);
    daemon.logged("no token within 5 s");
    assert_eq!(known.get("run.status")["state"], "idle", "who has shown it has all the time in the world");
}

#[test]
fn who_has_not_shown_the_token_cannot_make_the_daemon_remember_much() {
    let (_daemon, address) = Daemon::with_tcp();
    let mut client = Client::tcp(&address);
    client.send(vec![b'x'; 4097]);
    error(&client.answer(Value::Null), -32600);
    assert_eq!(client.line(), None);
    let mut known = Client::tcp(&address);
    known.call("control.hello", json!({"token": TOKEN}));
    let long = format!("{}{}", " ".repeat(1 << 20), request(1, "run.status", json!({})));
    known.send(long);
    assert_eq!(known.answer(1)["result"]["state"], "idle");
}

/// Who shows the token, and the answer. While more of those who were shown out are just leaving than there is room for, who comes is
/// hung up on, and tries again.
fn shows_the_token(address: &str) -> (Client, Value) {
    let mut found = None;
    until("the token is not looked at", || {
        let mut client = Client::tcp(address);
        let sent = client.try_send(request(1, "control.hello", json!({"token": TOKEN})).as_bytes());
        found = sent.ok().and_then(|()| client.line()).map(|answer| (client, answer));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn strangers_do_not_take_the_owners_places() {
    let (daemon, address) = Daemon::with_tcp();
    // also from the very address that he comes from
    let mut strangers: Vec<_> = (0..300).map(|_| Client::tcp(&address)).collect();
    let (mut owner, answer) = shows_the_token(&address);
    assert_eq!(answer["result"], true);
    assert_eq!(owner.get("run.status")["state"], "idle");
    assert_eq!(daemon.connect().get("run.status")["state"], "idle");
    assert_eq!(strangers[0].line(), None, "who came first left first");
    // none of them has taken one of the 64 permits
    strangers.clear();
    let known = |_| {
        let (client, answer) = shows_the_token(&address);
        assert_eq!(answer["result"], true);
        client
    };
    let _known: Vec<_> = (1..64).map(known).collect();
    let (_, refused) = shows_the_token(&address);
    assert_eq!(error(&refused, -32007)["code"], "ND-104-15");
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count();
    assert!(open < 64 + 16 + 32, "{open} descriptors");
}

#[test]
fn the_kernel_looks_whether_the_other_machine_is_still_there() {
    let (_daemon, address) = Daemon::with_tcp();
    let mut client = Client::tcp(&address);
    client.call("control.hello", json!({"token": TOKEN}));
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let here = format!("0100007F:{port:04X}");
    // proc_pid_net(5): local address, remote address, state (01 established), queues, timer (02 keep-alive)
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let timers: Vec<&str> = rows.filter(|row| row[1] == here && row[3] == "01").map(|row| row[5]).collect();
    assert_eq!(timers.len(), 1, "{table}");
    assert!(timers[0].starts_with("02:"), "{timers:?}");
}
