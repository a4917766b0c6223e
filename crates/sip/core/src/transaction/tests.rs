use super::*;
use crate::message::{Message, Name, scan};

const T: Timers = Timers { t1: 500 * MS, t2: 4_000 * MS, t4: 5_000 * MS, d: 32_000 * MS, trying: 200 * MS };

fn sent(what: Transmit) -> Actions {
    Actions::transmit(what)
}

fn ended(end: End) -> Actions {
    Actions { failed: end == End::TransportError, ..Actions::end(end) }
}

/// Times in milliseconds at which a machine acts when nothing comes, and what it does.
fn alone(
    mut deadline: impl FnMut() -> Option<u64>,
    mut on_timer: impl FnMut(u64) -> Actions,
) -> Vec<(u64, Actions)> {
    let mut all = Vec::new();
    while let Some(now) = deadline() {
        assert!(all.len() < 100);
        all.push((now / MS, on_timer(now)));
    }
    all
}

macro_rules! run {
    ($machine:expr) => {{
        let machine = std::cell::RefCell::new($machine);
        let all = alone(|| machine.borrow().deadline(), |now| machine.borrow_mut().on_timer(&T, now));
        let before = machine.borrow().state();
        assert_eq!(before, State::Terminated);
        all
    }};
}

/// Milliseconds of what is sent, then how it ended.
fn times(all: &[(u64, Actions)], what: Transmit, end: (u64, End)) -> Vec<u64> {
    let (last, rest) = all.split_last().unwrap();
    assert_eq!(*last, (end.0, ended(end.1)));
    assert!(rest.iter().all(|(_, actions)| *actions == sent(what)), "{rest:?}");
    rest.iter().map(|(at, _)| *at).collect()
}

#[test]
fn machines_are_small() {
    assert!(size_of::<InviteClient>() <= 64 && size_of::<Client>() <= 64);
    assert!(size_of::<InviteServer>() <= 64 && size_of::<Server>() <= 64);
}

/// RFC 3261 sections 17.1.1.2 and 17.1.2.2: timers A and B, E and F.
#[test]
fn requests_are_repeated_until_they_time_out() {
    let (machine, actions) = InviteClient::new(&T, false, 0);
    assert_eq!(actions, sent(Transmit::Request));
    let at = times(&run!(machine), Transmit::Request, (32_000, End::Timeout));
    assert_eq!(at, [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    assert_eq!(run!(InviteClient::new(&T, true, 0).0), [(32_000, ended(End::Timeout))]);

    let (machine, actions) = Client::new(&T, false, 0);
    assert_eq!(actions, sent(Transmit::Request));
    let at = times(&run!(machine), Transmit::Request, (32_000, End::Timeout));
    assert_eq!(at, [500, 1_500, 3_500, 7_500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
    assert_eq!(run!(Client::new(&T, true, 0).0), [(32_000, ended(End::Timeout))]);

    // In Proceeding timer E is T2 after its next expiry, and F runs on.
    let (mut machine, _) = Client::new(&T, false, 0);
    assert_eq!(machine.on_response(&T, 100, 100 * MS), Actions::deliver());
    let at = times(&run!(machine), Transmit::Request, (32_000, End::Timeout));
    assert_eq!(at, [500, 4_500, 8_500, 12_500, 16_500, 20_500, 24_500, 28_500]);
}

/// RFC 3261 figure 5 and RFC 6026 figure 3: state, reliable, response, actions, state.
#[test]
fn invite_client_by_state() {
    use State::{Accepted, Calling, Completed, Proceeding, Terminated};
    let ack = sent(Transmit::Ack);
    let ack_first = Actions { deliver: true, ..ack };
    let ack_last = Actions { end: Some(End::Normal), ..ack_first };
    for (state, reliable, code, actions, next) in [
        (Calling, false, 100, Actions::deliver(), Proceeding),
        (Calling, false, 200, Actions::deliver(), Accepted),
        (Calling, false, 486, ack_first, Completed),
        (Calling, true, 486, ack_last, Terminated),
        (Calling, false, 99, Actions::NONE, Calling),
        (Calling, false, 700, Actions::NONE, Calling),
        (Proceeding, false, 180, Actions::deliver(), Proceeding),
        (Proceeding, true, 200, Actions::deliver(), Accepted),
        (Proceeding, false, 302, ack_first, Completed),
        (Accepted, false, 200, Actions::deliver(), Accepted),
        (Accepted, false, 180, Actions::NONE, Accepted),
        (Accepted, false, 486, Actions::NONE, Accepted),
        (Completed, false, 486, ack, Completed),
        (Completed, false, 200, Actions::NONE, Completed),
        (Completed, false, 180, Actions::NONE, Completed),
        (Terminated, true, 200, Actions::NONE, Terminated),
        (Terminated, true, 486, Actions::NONE, Terminated),
    ] {
        let (mut machine, _) = InviteClient::new(&T, reliable, 0);
        let before: &[u16] = match state {
            Calling => &[],
            Proceeding => &[100],
            Accepted => &[100, 200],
            _ => &[486],
        };
        for code in before {
            let _ = machine.on_response(&T, *code, 0);
        }
        assert_eq!(machine.state(), state);
        assert_eq!(machine.on_response(&T, code, MS), actions, "{state:?} {code}");
        assert_eq!(machine.state(), next, "{state:?} {code}");
    }
    let after = |reliable, code| {
        let (mut machine, _) = InviteClient::new(&T, reliable, 0);
        let _ = machine.on_response(&T, code, 1_000 * MS);
        machine
    };
    assert_eq!(after(false, 180).deadline(), None, "Proceeding has no timer");
    assert_eq!(run!(after(false, 200)), [(33_000, ended(End::Normal))], "timer M");
    assert_eq!(run!(after(true, 200)), [(33_000, ended(End::Normal))], "timer M");
    assert_eq!(run!(after(false, 404)), [(33_000, ended(End::Normal))], "timer D");
    assert_eq!(after(true, 404).deadline(), None);
}

/// RFC 3261 figure 6.
#[test]
fn client_by_state() {
    use State::{Completed, Proceeding, Terminated, Trying};
    let last = Actions { end: Some(End::Normal), ..Actions::deliver() };
    for (state, reliable, code, actions, next) in [
        (Trying, false, 100, Actions::deliver(), Proceeding),
        (Trying, false, 200, Actions::deliver(), Completed),
        (Trying, true, 404, last, Terminated),
        (Proceeding, false, 182, Actions::deliver(), Proceeding),
        (Proceeding, false, 500, Actions::deliver(), Completed),
        (Completed, false, 200, Actions::NONE, Completed),
        (Completed, false, 100, Actions::NONE, Completed),
        (Terminated, true, 200, Actions::NONE, Terminated),
    ] {
        let (mut machine, _) = Client::new(&T, reliable, 0);
        let before: &[u16] = match state {
            Trying => &[],
            Proceeding => &[100],
            _ => &[200],
        };
        for code in before {
            let _ = machine.on_response(&T, *code, 0);
        }
        assert_eq!(machine.state(), state);
        assert_eq!(machine.on_response(&T, code, MS), actions, "{state:?} {code}");
        assert_eq!(machine.state(), next, "{state:?} {code}");
    }
    let (mut machine, _) = Client::new(&T, false, 0);
    let _ = machine.on_response(&T, 200, 1_000 * MS);
    assert_eq!(run!(machine), [(6_000, ended(End::Normal))], "timer K");
}

fn invite_server(state: State, reliable: bool) -> InviteServer {
    let (mut machine, actions) = InviteServer::new(&T, reliable, 0);
    assert_eq!(actions, Actions::deliver());
    let code = match state {
        State::Proceeding => None,
        State::Accepted => Some(200),
        _ => Some(486),
    };
    if let Some(code) = code {
        assert_eq!(machine.respond(&T, code, 0), sent(Transmit::Response));
    }
    if matches!(state, State::Confirmed | State::Terminated) {
        let _ = machine.on_ack(&T, 0);
    }
    assert_eq!(machine.state(), state);
    machine
}

/// RFC 3261 figure 7 and RFC 6026 figure 5.
#[test]
fn invite_server_by_state() {
    use State::{Accepted, Completed, Confirmed, Proceeding, Terminated};
    let response = sent(Transmit::Response);
    for (state, reliable, code, actions, next) in [
        (Proceeding, false, 180, response, Proceeding),
        (Proceeding, false, 200, response, Accepted),
        (Proceeding, true, 486, response, Completed),
        (Accepted, false, 200, response, Accepted),
        (Accepted, false, 180, Actions::NONE, Accepted),
        (Accepted, false, 486, Actions::NONE, Accepted),
        (Completed, false, 200, Actions::NONE, Completed),
        (Confirmed, false, 200, Actions::NONE, Confirmed),
        (Terminated, true, 200, Actions::NONE, Terminated),
    ] {
        let mut machine = invite_server(state, reliable);
        assert_eq!(machine.respond(&T, code, MS), actions, "{state:?} {code}");
        assert_eq!(machine.state(), next, "{state:?} {code}");
    }
    let over = Actions { end: Some(End::Normal), ..Actions::NONE };
    for (state, reliable, request, ack, next) in [
        (Proceeding, false, Actions::NONE, Actions::NONE, Proceeding),
        (Accepted, false, Actions::NONE, Actions::deliver(), Accepted),
        (Completed, false, response, Actions::NONE, Confirmed),
        (Completed, true, response, over, Terminated),
        (Confirmed, false, Actions::NONE, Actions::NONE, Confirmed),
        (Terminated, true, Actions::NONE, Actions::NONE, Terminated),
    ] {
        let mut machine = invite_server(state, reliable);
        assert_eq!(machine.on_request(), request, "{state:?}");
        assert_eq!(machine.on_ack(&T, MS), ack, "{state:?}");
        assert_eq!(machine.state(), next, "{state:?}");
    }
}

#[test]
fn invite_server_timers() {
    // 100 is sent after 200 ms, unless the user was faster, and again for a repeated request.
    let mut machine = invite_server(State::Proceeding, true);
    assert_eq!(machine.deadline(), Some(200 * MS));
    assert_eq!(machine.on_timer(&T, 199 * MS), Actions::NONE);
    assert_eq!(machine.on_timer(&T, 200 * MS), sent(Transmit::Trying));
    assert_eq!(machine.on_request(), sent(Transmit::Response));
    assert_eq!(machine.deadline(), None);
    let mut machine = invite_server(State::Proceeding, false);
    assert_eq!(machine.respond(&T, 180, 100 * MS), sent(Transmit::Response));
    assert_eq!(machine.deadline(), None);

    // Timers G and H.
    let at = times(&run!(invite_server(State::Completed, false)), Transmit::Response, (32_000, End::Timeout));
    assert_eq!(at, [500, 1_500, 3_500, 7_500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
    assert_eq!(run!(invite_server(State::Completed, true)), [(32_000, ended(End::Timeout))]);
    // Timers L and I.
    assert_eq!(run!(invite_server(State::Accepted, true)), [(32_000, ended(End::Normal))]);
    assert_eq!(run!(invite_server(State::Confirmed, false)), [(5_000, ended(End::Normal))]);
}

/// RFC 3261 figure 8.
#[test]
fn server_by_state() {
    use State::{Completed, Proceeding, Terminated, Trying};
    let response = sent(Transmit::Response);
    let last = Actions { end: Some(End::Normal), ..response };
    for (state, reliable, code, actions, next, again) in [
        (Trying, false, 100, response, Proceeding, Actions::NONE),
        (Trying, false, 200, response, Completed, Actions::NONE),
        (Trying, true, 200, last, Terminated, Actions::NONE),
        (Proceeding, false, 100, response, Proceeding, response),
        (Proceeding, false, 404, response, Completed, response),
        (Completed, false, 200, Actions::NONE, Completed, response),
        (Completed, false, 100, Actions::NONE, Completed, response),
        (Terminated, true, 200, Actions::NONE, Terminated, Actions::NONE),
    ] {
        let (mut machine, actions_first) = Server::new(reliable);
        assert_eq!(actions_first, Actions::deliver());
        match state {
            Trying => {}
            Proceeding => assert_eq!(machine.respond(&T, 100, 0), response),
            _ => assert_eq!(machine.respond(&T, 200, 0).transmit, response.transmit),
        }
        assert_eq!(machine.state(), state);
        assert_eq!(machine.on_request(), again, "{state:?}");
        assert_eq!(machine.respond(&T, code, MS), actions, "{state:?} {code}");
        assert_eq!(machine.state(), next, "{state:?} {code}");
    }
    let (mut machine, _) = Server::new(false);
    assert_eq!(machine.deadline(), None);
    let _ = machine.respond(&T, 200, 1_000 * MS);
    assert_eq!(run!(machine), [(33_000, ended(End::Normal))], "timer J");
}

#[test]
fn transport_errors() {
    let error = ended(End::TransportError);
    let (mut machine, _) = InviteClient::new(&T, true, 0);
    assert_eq!((machine.on_transport_error(), machine.state()), (error, State::Terminated));
    assert_eq!(machine.on_transport_error(), Actions::NONE);
    let (mut machine, _) = Client::new(&T, true, 0);
    assert_eq!((machine.on_transport_error(), machine.state()), (error, State::Terminated));
    let (mut machine, _) = Server::new(false);
    assert_eq!(machine.on_transport_error(), Actions::NONE);
    let _ = machine.respond(&T, 200, 0);
    assert_eq!((machine.on_transport_error(), machine.state()), (error, State::Terminated));
    let mut machine = invite_server(State::Completed, false);
    let failed = Actions { failed: true, ..Actions::NONE };
    assert_eq!((machine.on_transport_error(), machine.state()), (failed, State::Completed));
}

const INVITE: &str = "INVITE sip:b@c SIP/2.0\r\nVia: SIP/2.0/UDP h:5;branch=z9hG4bK1, SIP/2.0/UDP i\r\nRoute: <sip:p;lr>\r
From: <sip:a@b>;tag=1\r\nTo: <sip:b@c>\r\nCall-ID: x\r\nCSeq: 7 INVITE\r\nRoute: <sip:q;lr>\r\nContent-Length: 0\r\n\r\n";

#[test]
fn requests_of_another_transaction() {
    let invite = Message::parse(INVITE.as_bytes()).unwrap();
    let response = Message::response(&invite, 486, "Busy Here", Some("9"));
    let ack = ack(&invite, &response).unwrap();
    let text = String::from_utf8(ack.to_bytes()).unwrap();
    assert_eq!(
        text,
        "ACK sip:b@c SIP/2.0\r\nVia: SIP/2.0/UDP h:5;branch=z9hG4bK1\r\nRoute: <sip:p;lr>\r\nRoute: <sip:q;lr>\r\n\
         From: <sip:a@b>;tag=1\r\nCall-ID: x\r\nTo: <sip:b@c>;tag=9\r\nCSeq: 7 ACK\r\nMax-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let cancel = cancel(&invite).unwrap();
    assert_eq!(cancel.to().unwrap().tag(), None);
    assert_eq!(cancel.values(Name::CSeq).next(), Some("7 CANCEL"));
    assert!(super::cancel(&response).is_err());

    let (invite, ack, cancel) = (invite.to_bytes(), ack.to_bytes(), cancel.to_bytes());
    let key = |bytes| ServerKey::of(&scan(bytes).unwrap()).map(|key| format!("{key:?}"));
    assert_eq!(key(&invite), key(&ack), "an ACK belongs to its INVITE");
    assert_ne!(key(&invite), key(&cancel));
    let response = response.to_bytes();
    assert_eq!(key(&response), None);
    let scanned = scan(&response).unwrap();
    assert_eq!(ClientKey::of(&scanned), Some(ClientKey { branch: b"z9hG4bK1", method: b"INVITE" }));
    assert_eq!(ClientKey::of(&scan(&invite).unwrap()), None);
}

#[test]
fn requests_of_rfc_2543_have_keys() {
    let old = INVITE.replace("z9hG4bK1", "1");
    let ack = old.replace("INVITE", "ACK").replace("To: <sip:b@c>", "To: <sip:b@c>;tag=9");
    let other = old.replace("CSeq: 7", "CSeq: 8");
    let key = |text: &'static str| ServerKey::of(&scan(text.as_bytes()).unwrap()).unwrap();
    let key = |text: String| key(Box::leak(text.into_boxed_str()));
    let (old, ack, other) = (key(old), key(ack), key(other));
    assert!(matches!(old, ServerKey::Legacy { .. }));
    assert_eq!(old, ack);
    assert_ne!(old, other);
}
