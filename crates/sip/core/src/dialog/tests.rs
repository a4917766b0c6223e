use super::*;
use crate::message::header::{Event, RAck, Refresher, SessionExpires};
use crate::transaction::{MS, Timers};

fn message(text: &str) -> Message {
    let text = text.replace('\n', "\r\n") + "\r\n\r\n";
    Message::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0
Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bK1
Max-Forwards: 70
To: Bob <sip:bob@biloxi.com>
From: Alice <sip:alice@atlanta.com>;tag=a1
Call-ID: c1
CSeq: 10 INVITE
Record-Route: <sip:p2;lr>
Record-Route: <sip:p1;lr>
Contact: <sip:alice@pc33>";

fn response(code: u16, tag: &str, contact: &str) -> Message {
    let mut response = Message::response(&message(INVITE), code, "x", Some(tag));
    response.push(Name::Contact, contact);
    response
}

fn via() -> Via {
    Via::new("UDP", "pc33.atlanta.com", None, "z9hG4bK2")
}

fn routes(message: &Message) -> Vec<&str> {
    message.values(Name::Route).collect()
}

#[test]
fn both_sides_mirror_each_other() {
    let mut client = Dialog::client(&message(INVITE), &response(200, "b1", "<sip:bob@host>")).unwrap();
    let mut server = Dialog::server(&message(INVITE), 200, "b1").unwrap();
    assert_eq!((client.state, server.state), (State::Confirmed, State::Confirmed));
    assert_eq!(client.id, Id { call_id: "c1".into(), local_tag: "a1".into(), remote_tag: "b1".into() });
    assert_eq!(server.id, Id { call_id: "c1".into(), local_tag: "b1".into(), remote_tag: "a1".into() });

    let bye = client.request(Method::Bye, &via(), None);
    let text = String::from_utf8(bye.to_bytes()).unwrap();
    assert_eq!(
        text,
        "BYE sip:bob@host SIP/2.0\r\nVia: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bK2\r\nRoute: <sip:p1;lr>\r\n\
         Route: <sip:p2;lr>\r\nMax-Forwards: 70\r\nFrom: Alice <sip:alice@atlanta.com>;tag=a1\r\n\
         To: Bob <sip:bob@biloxi.com>;tag=b1\r\nCall-ID: c1\r\nCSeq: 11 BYE\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(Id::of_request(&bye), Some(server.id.clone()));
    assert_eq!(Id::of_request(&message(INVITE)), None);
    assert_eq!(client.next_hop().to_string(), "sip:p1;lr");

    let info = server.request(Method::Info, &via(), None);
    assert_eq!(routes(&info), ["<sip:p2;lr>", "<sip:p1;lr>"]);
    assert_eq!(info.uri().unwrap().to_string(), "sip:alice@pc33");
    assert_eq!(info.cseq().unwrap().number, 1);
    assert_eq!(info.from().unwrap().tag(), Some("b1"));

    assert_eq!(server.on_request(&bye), Ok(()));
    assert_eq!(server.state, State::Terminated);
    assert_eq!(client.on_response(&Message::response(&bye, 200, "OK", None)), Ok(()));
    assert_eq!(client.state, State::Terminated);
}

#[test]
fn ack_has_the_number_of_its_invite() {
    let mut client = Dialog::client(&message(INVITE), &response(200, "b1", "<sip:bob@host>")).unwrap();
    let ack = client.ack(10, &via());
    assert_eq!(ack.cseq().unwrap().to_string(), "10 ACK");
    assert_eq!(client.request(Method::Info, &via(), None).cseq().unwrap().number, 11);
}

/// RFC 3261 section 12.2.1.1, a strict router first.
#[test]
fn strict_routers_are_put_into_the_request_line() {
    let invite = INVITE.replace("<sip:p1;lr>", "<sip:p1?a=b>");
    let mut answer = Message::response(&message(&invite), 200, "OK", Some("b1"));
    answer.push(Name::Contact, "<sip:bob@host;x=y>");
    let mut client = Dialog::client(&message(INVITE), &answer).unwrap();
    let bye = client.request(Method::Bye, &via(), None);
    assert_eq!(bye.uri().unwrap().to_string(), "sip:p1");
    assert_eq!(routes(&bye), ["<sip:p2;lr>", "<sip:bob@host;x=y>"]);
}

#[test]
fn requests_are_taken_in_order() {
    let mut server = Dialog::server(&message(INVITE), 180, "b1").unwrap();
    let request = |number: u32, method: &str| {
        message(
            &INVITE
                .replace("10 INVITE", &format!("{number} {method}"))
                .replace("INVITE sip", &format!("{method} sip")),
        )
    };
    assert_eq!(server.on_request(&request(10, "INFO")), Err(DialogError::Order));
    assert_eq!(server.on_request(&request(10, "ACK")), Ok(()));
    assert_eq!(server.on_request(&request(10, "CANCEL")), Ok(()));
    assert_eq!(server.on_request(&request(12, "INFO")), Ok(()), "numbers may be left out");
    assert_eq!(server.on_request(&request(11, "INFO")), Err(DialogError::Order));
    assert_eq!(server.state, State::Early);
    server.confirm();
    assert_eq!(server.state, State::Confirmed);
}

#[test]
fn targets_are_refreshed() {
    let mut server = Dialog::server(&message(INVITE), 200, "b1").unwrap();
    let moved = |method: &str, number: u32| {
        let text = INVITE.replace("alice@pc33", &format!("alice@pc{number}"));
        message(
            &text
                .replace("10 INVITE", &format!("{number} {method}"))
                .replace("INVITE sip", &format!("{method} sip")),
        )
    };
    for (number, method, target) in [(44, "INFO", "pc33"), (45, "UPDATE", "pc45"), (46, "INVITE", "pc46")] {
        server.on_request(&moved(method, number)).unwrap();
        assert_eq!(server.remote_target.to_string(), format!("sip:alice@{target}"), "{method}");
    }
    let mut client = Dialog::client(&message(INVITE), &response(200, "b1", "<sip:bob@host>")).unwrap();
    let reinvite = client.request(Method::Invite, &via(), Some(&client.local.clone()));
    assert_eq!(reinvite.contacts().unwrap().len(), 1);
    let mut answer = Message::response(&reinvite, 200, "OK", None);
    answer.push(Name::Contact, "<sip:bob@other>");
    client.on_response(&answer).unwrap();
    assert_eq!(client.remote_target.to_string(), "sip:bob@other");
    for (code, state) in [(404, State::Confirmed), (491, State::Confirmed), (481, State::Terminated)] {
        client.on_response(&Message::response(&reinvite, code, "x", None)).unwrap();
        assert_eq!(client.state, state, "{code}");
    }
}

#[test]
fn what_makes_no_dialog_is_refused() {
    let client = |response: &Message| Dialog::client(&message(INVITE), response).map(|_| ());
    assert_eq!(client(&response(100, "b", "<sip:b>")), Err(DialogError::StatusCode(100)));
    assert_eq!(client(&response(486, "b", "<sip:b>")), Err(DialogError::StatusCode(486)));
    assert_eq!(client(&response(200, "b", "*")), Err(DialogError::Contact));
    assert_eq!(client(&Message::response(&message(INVITE), 200, "", Some("b"))), Err(DialogError::Contact));
    assert_eq!(client(&response(200, "b", "<sip:b>, <sip:c>")), Err(DialogError::Contact));
    assert_eq!(client(&message(INVITE)), Err(DialogError::NotAResponse));
    assert_eq!(
        client(&Message::response(&message(INVITE), 180, "", Some("b"))),
        Ok(()),
        "early, without Contact"
    );
    assert_eq!(Dialog::server(&message(INVITE), 302, "b").map(|_| ()), Err(DialogError::StatusCode(302)));
}

#[test]
fn forks_make_a_dialog_each() {
    let mut forks = Forks::new(message(INVITE));
    let mut on = |code, tag: &str| forks.on_response(&response(code, tag, "<sip:bob@host>"));
    assert_eq!(on(100, "x"), Ok(ForkEvent::Trying));
    assert_eq!(on(180, "b1"), Ok(ForkEvent::Early(0)));
    assert_eq!(on(183, "b2"), Ok(ForkEvent::Early(1)));
    assert_eq!(on(183, "b1"), Ok(ForkEvent::Progress(0)));
    assert_eq!(on(200, "b2"), Ok(ForkEvent::Confirmed(1)));
    assert_eq!(on(200, "b2"), Ok(ForkEvent::Repeated(1)));
    assert_eq!(on(200, "b3"), Ok(ForkEvent::Confirmed(2)));
    assert_eq!(forks.end_early(), 1);
    let states: Vec<_> = forks.dialogs().iter().map(|dialog| dialog.state).collect();
    assert_eq!(states, [State::Terminated, State::Confirmed, State::Confirmed]);

    let mut forks = Forks::new(message(INVITE));
    for at in 0..MAX_FORKS {
        let event = forks.on_response(&response(180, &format!("t{at}"), "<sip:b>"));
        assert_eq!(event, Ok(ForkEvent::Early(at)));
    }
    assert_eq!(forks.on_response(&response(180, "more", "<sip:b>")), Err(DialogError::Forks));
    assert_eq!(forks.on_response(&response(486, "any", "<sip:b>")), Ok(ForkEvent::Rejected));
    assert_eq!(forks.end_early(), 0);
    assert!(forks.dialog_mut(0).is_some_and(|dialog| dialog.state == State::Terminated));
}

fn prack(rack: &str) -> Message {
    message(&format!("{}\nRAck: {rack}", INVITE.replace("INVITE", "PRACK")))
}

/// RFC 3262 section 3.
#[test]
fn reliable_responses_wait_for_prack() {
    let timers = Timers::default();
    let invite = CSeq { number: 10, method: Method::Invite };
    let mut sender = ProvisionalSender::new(invite.clone(), 988_789);
    assert_eq!(sender.send(&timers, 0), Ok(988_789));
    assert_eq!(sender.send(&timers, 0), Err(DialogError::Waiting));
    let mut sent = Vec::new();
    while let Some(now) = sender.deadline().filter(|_| sent.len() < 5) {
        sent.push((now / MS, sender.on_timer(now)));
    }
    assert_eq!(sent, [500, 1_500, 3_500, 7_500, 15_500].map(|at| (at, Some(true))));
    for wrong in ["988788 10 INVITE", "988789 11 INVITE", "988789 10 UPDATE"] {
        assert_eq!(sender.on_prack(&prack(wrong)), Err(DialogError::RAck), "{wrong}");
    }
    assert_eq!(sender.on_prack(&prack("988789 10 INVITE")), Ok(()));
    assert_eq!(sender.deadline(), None);
    assert_eq!(sender.on_prack(&prack("988789 10 INVITE")), Err(DialogError::RAck));
    assert_eq!(sender.send(&timers, 0), Ok(988_790));
    assert_eq!(sender.on_timer(32_000 * MS), Some(false), "64 T1 later: give up");

    // The client's side: in order, each once.
    let reliable = |rseq: u32| {
        let mut response = response(183, "b1", "<sip:b>");
        response.push(Name::Require, "precondition, 100Rel");
        response.push(Name::RSeq, rseq);
        response
    };
    let mut receiver = ProvisionalReceiver::default();
    let acknowledge = |rseq| Ok(ProvisionalAction::Acknowledge(RAck { rseq, cseq: invite.clone() }));
    assert_eq!(receiver.on_response(&reliable(5)), acknowledge(5));
    assert_eq!(receiver.on_response(&reliable(5)), Ok(ProvisionalAction::Ignore));
    assert_eq!(receiver.on_response(&reliable(7)), Ok(ProvisionalAction::Ignore), "6 comes first");
    assert_eq!(receiver.on_response(&reliable(6)), acknowledge(6));
    assert_eq!(receiver.on_response(&response(180, "b1", "<sip:b>")), Ok(ProvisionalAction::Unreliable));
    let mut none = reliable(7);
    none.remove(Name::RSeq);
    assert!(receiver.on_response(&none).is_err());
}

/// RFC 4028 section 9: what the request has, and what the server answers.
#[test]
fn session_timers_are_negotiated() {
    let policy = SessionPolicy { interval: 1_800, min_se: 120, refresher: Refresher::Uas };
    let answer = |lines: &str| accept_offer(&message(&format!("{INVITE}{lines}")), &policy).unwrap();
    let agreed = |seconds, refresher, require| Negotiation::Agreed {
        expires: SessionExpires::new(seconds, Some(refresher)),
        require,
    };
    use Refresher::{Uac, Uas};
    assert_eq!(answer(""), agreed(1_800, Uas, false));
    assert_eq!(answer("\nSupported: timer"), agreed(1_800, Uas, true));
    assert_eq!(answer("\nk: timer\nx: 600;refresher=uac"), agreed(600, Uac, true));
    assert_eq!(answer("\nk: timer\nx: 600;refresher=uas"), agreed(600, Uas, true));
    assert_eq!(answer("\nk: timer\nx: 600"), agreed(600, Uas, true));
    assert_eq!(answer("\nk: timer\nx: 3600"), agreed(1_800, Uas, true), "lowered");
    assert_eq!(answer("\nk: timer\nx: 3600\nMin-SE: 2000"), agreed(2_000, Uas, true), "not under Min-SE");
    assert_eq!(answer("\nk: timer\nx: 119"), Negotiation::TooSmall(120));
    assert_eq!(answer("\nx: 119"), agreed(119, Uas, false), "a proxy's offer is never refused");
    assert_eq!(answer("\nx: 0"), agreed(90, Uas, false), "nor is it under 90 s");
    assert_eq!(answer("\nx: 600;refresher=uac"), agreed(600, Uas, false));

    let mut refused = Message::response(&message(INVITE), 422, "x", Some("b"));
    assert!(retry_after_422(&refused, &policy).is_err());
    refused.push(Name::MinSe, 3_600);
    assert_eq!(retry_after_422(&refused, &policy), Ok((3_600, 3_600)));
}

#[test]
fn sessions_are_refreshed_or_end() {
    const S: u64 = 1_000 * MS;
    let start = |value: &str, client| {
        let mut ok = response(200, "b1", "<sip:b>");
        ok.push(Name::SessionExpires, value);
        SessionTimer::start(&ok, client, 0).unwrap().unwrap()
    };
    assert_eq!(SessionTimer::start(&response(200, "b", "<sip:b>"), true, 0), Ok(None));
    let mut refresher = start("300;refresher=uac", true);
    assert!(refresher.refreshes());
    assert_eq!((refresher.deadline(), refresher.on_timer(150 * S - 1)), (150 * S, None));
    assert_eq!(refresher.on_timer(150 * S), Some(TimerEvent::Refresh));
    let unanswered = refresher;
    refresher.restart(151 * S);
    assert_eq!(refresher.deadline(), 301 * S);
    assert_eq!(refresher.on_timer(301 * S), Some(TimerEvent::Refresh), "it goes on refreshing");
    let mut refresher = unanswered;
    assert_eq!((refresher.deadline(), refresher.on_timer(268 * S)), (268 * S, Some(TimerEvent::Expired)));
    assert_eq!(refresher.on_timer(400 * S), None);

    let mut other = start("300;refresher=uac", false);
    assert_eq!((other.deadline(), other.on_timer(268 * S)), (268 * S, Some(TimerEvent::Expired)));
    assert_eq!(start("90;refresher=uas", true).deadline(), 60 * S, "a third of a short interval");
    assert!(start("90;refresher=uas", false).refreshes());
    let _ = start("4294967295", true);
    assert_eq!(start("0", true).deadline(), 45 * S, "as if it were 90 s");
}

#[test]
fn references_and_their_notifications() {
    let refer =
        message(&format!("{}\nRefer-To: <sip:carol@c?Replaces=x>", INVITE.replace("INVITE", "REFER")));
    let reference = Reference::of(&refer).unwrap();
    assert_eq!((reference.event.as_str(), reference.silent), ("refer;id=10", false));
    assert_eq!(reference.refer_to.uri.to_string(), "sip:carol@c?Replaces=x");
    assert!(Reference::of(&message(INVITE)).is_err());
    assert!(Reference::of(&message(&INVITE.replace("INVITE", "REFER"))).is_err());

    let mut dialog = Dialog::server(&refer, 202, "b1").unwrap();
    let mut notify = |code: u16| {
        let mut notify = dialog.request(Method::Notify, &via(), None);
        notify.push(Name::Event, &reference.event);
        notify.push(Name::SubscriptionState, subscribe_state(code, 60));
        notify.set_body("message/sipfrag;version=2.0", notify_body(code, "x"));
        Message::parse(&notify.to_bytes()).unwrap()
    };
    assert_eq!(notify_status(&notify(100)), Ok((Some(100), false)));
    let mut last = notify(503);
    assert_eq!(notify_status(&last), Ok((Some(503), true)));
    assert_eq!(reference.is_notified_by(&last), Ok(true));
    for (event, known) in [("refer", true), ("refer;id=11", false), ("presence;id=10", false)] {
        last.set(Name::Event, event);
        assert_eq!(reference.is_notified_by(&last), Ok(known), "{event}");
        assert_eq!(last.get::<Event>(Name::Event).unwrap().unwrap().to_string(), event);
    }
    last.set_body("message/sipfrag", "hello");
    assert_eq!(notify_status(&last), Ok((None, true)));
}
