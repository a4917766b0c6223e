//! A user agent: plays its scenario over one connection.
//!
//! The scenario says what comes next; what no step has to say is done here: requests are sent again over UDP and given up
//! (RFC 3261 section 17), failures to INVITE acknowledged, challenges answered (section 22), requests answered again that
//! came again, and those answered that no step waits for.

mod called;
mod ended;
mod expected;
mod failover;
#[cfg(any(test, feature = "testing"))]
mod footprint;
mod fork;
mod legs;
mod lifetime;
mod media;
mod next_hop;
mod parting;
mod receive;
mod refuse;
mod reliable;
mod send;
mod server;
#[cfg(test)]
mod tests;
mod timers;
mod unacknowledged;
mod websocket;

use crate::auth::Credentials;
use crate::callees::CALLED_EARLY;
use crate::config::Config;
use crate::dialog::Dialog;
use crate::measure;
use crate::method::Method;
use crate::scenario::{Alternative, DEPTH_MAX, ExpectedMessage, Op, When, rejected};
use crate::transaction::{Client, Server};
use expected::{is_other_response, matches};
use fork::Fork;
use legs::Leg;
use media::CallMedia;
use protocol::cause::Cause;
use protocol::media::MediaPacket;
use protocol::meter::{Failure, Phase};
use protocol::model::{Cx, Model};
use protocol::time::Time;
use rand::Rng;
use reliable::Reliable;
use sip_core::sdp::Session as Sdp;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use unacknowledged::PendingAck;

/// Messages that wait for the step that expects them, at most.
const INBOX_MAX: usize = 16;
/// How long after the end of the load calls are still answered: those that began before it are on their way.
const LINGER: Duration = Duration::from_secs(1);
/// Steps in one callback, at most: a scenario that goes round without waiting lets others have their turn.
const STEPS_A_TURN: usize = 64;

/// An ACK, and where it goes where that is not the server.
type SentAck = (Option<SocketAddr>, Vec<u8>);

/// What came and waits for its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A response to a request of this method. `first`: when the request was due; `delay`: what it is measured by.
    Response {
        method: Method,
        status: u16,
        first: Time,
        delay: usize,
        /// It ends a call that whoever sent it knows nothing of.
        dropped: bool,
    },
    Request(Method),
}

/// Where a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Connecting,
    /// The connection that was kept had been closed: requests under way are sent again over the next.
    Reconnecting,
    Running,
    /// The load is over: what is under way is finished, repeats are not played again.
    Stopping,
}

/// One user agent.
#[derive(Debug)]
pub(crate) struct UserAgent {
    config: Arc<Config>,
    stage: Stage,
    /// The present step, and how often each repeat around it has been played.
    at: u16,
    rounds: [u32; DEPTH_MAX],
    /// When the present step fell due.
    due: Time,
    /// End of the present pause or of the wait for a message; [`Time::ZERO`]: the step has not begun.
    until: Time,
    /// Number of the flow.
    flow: u64,
    /// Numbers that were given to calls and branches.
    calls: u32,
    branches: u32,
    /// CSeq of registrations, whose Call-ID stays (section 10.2).
    registers: u32,
    /// The shortest lifetime that the server accepts, as far as it has said, s.
    min_expires: u64,
    /// Under way: an INVITE, and another request.
    invite: Option<Box<Client>>,
    request: Option<Box<Client>>,
    /// Received: an INVITE, and another request; which of them steps answer.
    invited: Option<Box<Server>>,
    requested: Option<Box<Server>>,
    answers_invite: bool,
    /// Requests that were answered before, which may come again.
    past: VecDeque<Box<Server>>,
    /// Answers to INVITEs that are not under way any more and have no ACK yet.
    unacknowledged: VecDeque<PendingAck>,
    inbox: VecDeque<(u8, Event)>,
    /// The dialog that these belong to, and the others.
    leg: u8,
    aside: Vec<Leg>,
    reliable: Option<Box<Reliable>>,
    /// Method of the last request sent, which a step expects the response to.
    last: Method,
    dialog: Option<Box<Dialog>>,
    /// Values that steps took from messages of this flow.
    captured: Box<[Vec<u8>]>,
    /// The ACK to the last 2xx, which is sent again when that comes again, and where it goes.
    ack: Option<SentAck>,
    /// The last call that was answered: its number, and the tag of who answered it.
    answered: (u32, u64),
    /// Further callees of it.
    forks: Vec<Fork>,
    auth: Credentials,
    local: SocketAddr,
    /// The server's address, where it is known.
    peer: Option<SocketAddr>,
    websocket: Option<Box<::websocket::Socket>>,
    /// Address of the media socket for RTP, the audio of the present call, what its INVITE offers, and the source of the peer
    /// in the call before.
    media_address: Option<SocketAddr>,
    media: Option<Box<CallMedia>>,
    offered: Option<Sdp>,
    stale: Option<u32>,
    /// The flow began on a connection that was kept; something has come since it began, or since the connection was replaced.
    kept: bool,
    heard: bool,
    /// The server closed the connection while nothing was asked: the next request opens another.
    parted: bool,
    /// Since when the connection is up.
    up: Time,
    /// The load is over, and calls that are on their way are answered until then.
    lingers: Time,
    armed: Time,
    /// When something other than audio is due.
    signalling: Time,
    /// Since when it has waited for a response.
    silent: Time,
}

impl UserAgent {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            stage: Stage::Idle,
            at: 0,
            rounds: [0; DEPTH_MAX],
            due: Time::ZERO,
            until: Time::ZERO,
            flow: 0,
            calls: 0,
            branches: 0,
            registers: 0,
            min_expires: 0,
            invite: None,
            request: None,
            invited: None,
            requested: None,
            answers_invite: false,
            past: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            inbox: VecDeque::new(),
            leg: 0,
            aside: Vec::new(),
            reliable: None,
            last: Method::Unknown,
            dialog: None,
            captured: Box::default(),
            ack: None,
            answered: (0, 0),
            forks: Vec::new(),
            auth: Credentials::default(),
            local: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            peer: None,
            websocket: None,
            media_address: None,
            media: None,
            offered: None,
            stale: None,
            kept: false,
            heard: false,
            parted: false,
            up: Time::ZERO,
            lingers: Time::ZERO,
            armed: Time::NEVER,
            signalling: Time::NEVER,
            silent: Time::NEVER,
        }
    }

    /// Play steps until one has to wait.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        for _ in 0..STEPS_A_TURN {
            if !matches!(self.stage, Stage::Running | Stage::Stopping) {
                return;
            }
            let Some(op) = config.ops.get(usize::from(self.at)) else {
                if (self.releases() || self.acknowledges()) && !config.reliable {
                    break; // until those calls and PRACKs are over too
                }
                if self.is_ack_due(cx.now) {
                    break;
                }
                return self.complete(cx);
            };
            match op {
                Op::Send(request) => {
                    if request.expires != Some(0) && self.is_over(cx, request.method) {
                        return self.complete(cx);
                    }
                    if self.parted {
                        return self.open_again(cx);
                    }
                    self.send(cx, request);
                    self.next(cx);
                }
                Op::Answer(answer) => {
                    self.select(answer.leg);
                    // RFC 3262 section 3: not before the PRACK
                    if (101..300).contains(&answer.status) && self.answers_invite && self.is_unacknowledged()
                    {
                        break;
                    }
                    self.answer(cx, answer);
                    self.next(cx);
                }
                Op::Pause(pause) => {
                    if self.until == Time::ZERO {
                        self.until = self.due + *pause;
                    }
                    // the load is over: a call is not held for longer than its keys take
                    if self.until > cx.now && (self.stage == Stage::Running || self.is_pressing()) {
                        break;
                    }
                    let due = self.until.min(cx.now);
                    self.was_idle_for(*pause);
                    self.next(cx);
                    self.due = due;
                }
                Op::Jump { to, when } => {
                    if self.holds(cx, *when) {
                        self.go_to(*to);
                    } else {
                        self.at += 1;
                        self.until = Time::ZERO;
                    }
                }
                Op::Again { start, depth, count } => self.again(*start, usize::from(*depth), *count, cx),
                Op::Expect(alternatives) => {
                    if self.until == Time::ZERO {
                        let within = alternatives.iter().filter_map(|one| one.within).min();
                        self.until = within.map_or(Time::NEVER, |within| cx.now + within);
                    }
                    if !self.expect(cx, alternatives) {
                        if self.stage == Stage::Stopping && self.is_waiting_for_calls(alternatives) {
                            if self.lingers == Time::ZERO {
                                self.lingers = cx.now + LINGER;
                            }
                            if self.lingers <= cx.now {
                                self.end_repeats(cx);
                                continue;
                            }
                        }
                        break;
                    }
                }
            }
        }
        self.arm(cx);
    }

    /// Whether a condition of a jump holds.
    fn holds(&self, cx: &mut Cx<'_>, when: When) -> bool {
        let given = |slot: usize| self.captured.get(slot).is_some_and(|value| !value.is_empty());
        match when {
            When::Always => true,
            When::Given(slot) => given(slot),
            When::Absent(slot) => !given(slot),
            When::Chance(chance) => cx.rng.random_bool(chance),
        }
    }

    /// Send a message.
    fn say(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) {
        if let Some(websocket) = &mut self.websocket {
            websocket.send(bytes);
            websocket.take(&mut cx.out.bytes);
        } else if self.config.reliable {
            cx.out.bytes.extend_from_slice(bytes);
        } else {
            cx.out.push_datagram(bytes);
        }
    }

    /// Send a message, over UDP perhaps to another than the server.
    fn say_to(&mut self, cx: &mut Cx<'_>, to: Option<SocketAddr>, bytes: &[u8]) {
        match to {
            Some(to) => cx.out.elsewhere.push((to, bytes.to_vec())),
            None => self.say(cx, bytes),
        }
    }

    /// Whether the load was over before a request of `method` fell due that would begin something new: what is up is still
    /// ended, and what waited for its connection until now is still sent.
    fn is_over(&self, cx: &Cx<'_>, method: Method) -> bool {
        let ends = matches!(method, Method::Ack | Method::Bye | Method::Cancel | Method::Prack);
        let is_due = cx.left > 0 && cx.window.phase(self.due) != Phase::Drain;
        !ends && !self.in_any_session() && !is_due
    }

    /// A user agent that waits to be called and is in no call has nothing to finish.
    fn is_waiting_for_calls(&self, alternatives: &[Alternative]) -> bool {
        let requests =
            alternatives.iter().all(|one| !matches!(one.message, ExpectedMessage::Response { .. }));
        let in_call =
            self.in_any_session() || self.invited.as_ref().is_some_and(|invited| invited.status < 200);
        requests && !in_call
    }

    fn next(&mut self, cx: &Cx<'_>) {
        self.at += 1;
        self.until = Time::ZERO;
        self.due = cx.now;
    }

    fn go_to(&mut self, to: u16) {
        self.at = to;
        self.until = Time::ZERO;
    }

    fn again(&mut self, start: u16, depth: usize, count: u32, cx: &Cx<'_>) {
        let played = self.rounds[depth] + 1;
        let lingers = self.lingers > cx.now;
        let goes_on = self.stage == Stage::Running && cx.loading() || lingers;
        if goes_on && (count == 0 || played < count) {
            self.rounds[depth] = played % u32::MAX;
            self.go_to(start);
        } else {
            self.rounds[depth] = 0;
            self.at += 1;
            self.until = Time::ZERO;
        }
        self.due = cx.now;
    }

    /// Go on behind the repeats that the present step is in.
    fn end_repeats(&mut self, cx: &Cx<'_>) {
        let behind = self.config.ops.iter().rposition(|op| matches!(op, Op::Again { .. }));
        let end = behind.map_or(self.config.ops.len(), |again| again + 1);
        self.at = u16::try_from(end).unwrap_or(u16::MAX);
        self.until = Time::ZERO;
        self.due = cx.now;
    }

    /// Look for what the present step waits for. True: it is passed.
    fn expect(&mut self, cx: &mut Cx<'_>, alternatives: &[Alternative]) -> bool {
        let found = self.inbox.iter().enumerate().find_map(|(place, (leg, event))| {
            let last = self.last_of(*leg);
            let one = alternatives.iter().find(|one| matches(one, *leg, event, last))?;
            Some((place, *leg, *event, one.then))
        });
        if let Some((place, leg, event, then)) = found {
            // what was passed over is of no interest any more, unless it is of another transaction
            self.inbox.remove(place);
            self.select(leg);
            self.take(cx, event);
            self.due = cx.now;
            match then {
                Some(label) => self.go_to(label),
                None => {
                    self.at += 1;
                    self.until = Time::ZERO;
                }
            }
            return true;
        }
        let told =
            |(leg, event): &(u8, Event)| is_other_response(alternatives, *leg, event, self.last_of(*leg));
        let Some((leg, event)) = self.inbox.iter().copied().find(told) else { return false };
        if alternatives.iter().all(|one| one.optional) {
            self.at += 1;
            self.until = Time::ZERO;
            return true;
        }
        if let Event::Response { status: 100..=199, .. } = event {
            self.inbox.retain(|other| *other != (leg, event));
            return false;
        }
        self.refused(cx, event);
        true
    }

    /// A step took `event`.
    fn take(&mut self, cx: &mut Cx<'_>, event: Event) {
        match event {
            Event::Response { status: 200.., first, delay, dropped, .. } => {
                cx.delivered(first, delay);
                cx.disowned += u64::from(dropped);
            }
            Event::Response { .. } => {}
            Event::Request(method) => {
                self.answers_invite = method == Method::Invite;
                if method == Method::Ack {
                    // no answer is due: a further one is to what came before
                    self.answers_invite = self.requested.is_none();
                }
            }
        }
    }

    /// A final response came that the scenario does not go on with.
    fn refused(&mut self, cx: &mut Cx<'_>, event: Event) {
        if let Event::Response { method, status, first, delay, .. } = event {
            // it is an answer: nothing was lost
            let reason = crate::scenario::reason(status);
            cx.delay(first, delay);
            if method == Method::Invite && self.is_called_early(status, first) {
                return self.fail(cx, Cause::named(Failure::Local, CALLED_EARLY), || {
                    format!("{method} was answered with {status} {reason} before the callee had registered")
                });
            }
            self.fail(cx, rejected(status), || format!("{method} was answered with {status} {reason}"));
        }
    }

    /// The flow ends in good order.
    fn complete(&mut self, cx: &mut Cx<'_>) {
        self.sum_up_media(cx);
        self.leave();
        cx.wake_at(Time::NEVER);
        self.armed = Time::NEVER;
        cx.finish();
    }

    /// The flow ends, and not as the scenario says.
    fn fail(
        &mut self,
        cx: &mut Cx<'_>,
        why: impl Into<protocol::cause::Cause>,
        what: impl FnOnce() -> String,
    ) {
        cx.failure(cx.now, why, what);
        self.sum_up_media(cx);
        self.registration_failed(cx);
        self.leave();
        cx.wake_at(Time::NEVER);
        self.armed = Time::NEVER;
        cx.give_up();
    }

    fn leave(&mut self) {
        let selected = self.leg;
        for leg in self.legs() {
            self.select(leg);
            self.keep_unacknowledged();
            let (invited, requested) = (self.invited.take(), self.requested.take());
            self.remember(invited);
            self.remember(requested);
        }
        self.select(selected);
        self.stage = Stage::Idle;
        self.parted = false;
        self.silent = Time::NEVER;
        self.invite = None;
        self.request = None;
        self.dialog = None;
        self.clear_aside();
        self.reliable = None;
        self.lingers = Time::ZERO;
        self.inbox.clear();
    }
}

impl Model for UserAgent {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.sum_up_media(cx);
        self.media_address = cx.media.or(self.media_address);
        self.leave();
        self.forks.clear();
        self.at = 0;
        self.rounds = [0; DEPTH_MAX];
        self.due = cx.intended;
        self.until = Time::ZERO;
        self.flow += 1;
        self.armed = Time::NEVER;
        if !self.config.reuse_nonce {
            self.auth.clear();
        }
        if self.captured.len() < self.config.captures {
            self.captured = vec![Vec::new(); self.config.captures].into();
        }
        self.captured.iter_mut().for_each(Vec::clear);
        self.heard = false;
        self.kept = cx.local.is_some();
        match cx.local {
            Some(local) if self.is_carried() => {
                self.local = local;
                self.peer = cx.peer;
                self.stage = Stage::Running;
                self.advance(cx);
            }
            _ => {
                self.websocket = None;
                self.stage = Stage::Connecting;
                cx.connect();
            }
        }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.up = cx.now;
        self.local = cx.local.unwrap_or(self.local);
        self.peer = cx.peer;
        self.media_address = cx.media.or(self.media_address);
        if self.config.websocket.is_some() {
            return self.begin_handshake(cx);
        }
        self.transport_up(cx);
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.config.websocket.is_some() {
            self.websocket_received(cx, bytes);
            return bytes.len();
        }
        if matches!(self.stage, Stage::Connecting | Stage::Reconnecting) {
            return bytes.len();
        }
        self.heard = true;
        if self.config.reliable {
            return self.stream(cx, bytes);
        }
        self.message(cx, bytes);
        self.advance(cx);
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = Time::NEVER;
        if self.is_shaking() {
            return self.handshake_timed_out(cx);
        }
        if !matches!(self.stage, Stage::Running | Stage::Stopping) {
            return;
        }
        self.send_media(cx);
        if self.signalling > cx.now {
            return self.wake(cx);
        }
        if self.retransmit(cx) && !self.timed_out(cx) {
            self.advance(cx);
        }
    }

    fn media(&mut self, cx: &mut Cx<'_>, packet: MediaPacket<'_>) {
        self.hear(cx, &packet);
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        let stage = self.stage;
        match stage {
            Stage::Idle => {}
            // RFC 5923 section 8: the server was free to close an idle connection just as we used it again
            _ if self.is_reopened() && self.config.reliable => {
                self.kept = false;
                self.stage = Stage::Reconnecting;
                cx.mark_clean_close();
                cx.connect();
            }
            // section 4.3 of RFC 3263
            _ if self.leaves_server(cx, why) => {}
            _ if self.parts(cx, why) => {
                self.parted = true;
                cx.mark_clean_close();
            }
            // a datagram was refused: it is sent again, or its transaction fails in time (section 8.1.3.1)
            _ if !self.config.reliable && why == Failure::Unreachable => {}
            _ => {
                self.explain_handshake(cx, why);
                // one request failed with the connection, which the transport counts
                self.forget(cx, 1, "the connection broke before the response came");
                self.registration_failed(cx);
                self.leave();
                cx.give_up();
            }
        }
        self.websocket = None;
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        match self.stage {
            Stage::Idle | Stage::Connecting | Stage::Reconnecting => {}
            Stage::Running | Stage::Stopping => {
                self.stage = Stage::Stopping;
                self.advance(cx);
            }
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.is_shaking() {
            cx.never_answered(cx.now, "no answer to the WebSocket handshake by the end of the drain");
        }
        self.forget(cx, 0, "no final response by the end of the drain");
        self.leave();
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        if self.stage == Stage::Idle { Time::NEVER } else { self.silent }
    }
}

impl UserAgent {
    /// Whether it waits for a call and is in none.
    pub(crate) fn is_free(&self) -> bool {
        let Some(Op::Expect(alternatives)) = self.config.ops.get(usize::from(self.at)) else { return false };
        let calls = |one: &Alternative| match &one.message {
            ExpectedMessage::Request(method) => {
                !matches!(method, Method::Ack | Method::Bye | Method::Cancel | Method::Prack)
            }
            ExpectedMessage::AnyRequest => true,
            ExpectedMessage::Response { .. } => false,
        };
        self.stage == Stage::Running
            && self.inbox.is_empty()
            && !self.in_any_session()
            && alternatives.iter().any(calls)
    }

    /// What is under way is never answered now; `counted`: how many of these are counted elsewhere.
    fn forget(&mut self, cx: &mut Cx<'_>, mut counted: u32, what: &str) {
        self.sum_up_media(cx);
        for leg in self.legs() {
            self.select(leg);
            let session = self.in_session();
            for (client, asks) in [(self.invite.take(), !session), (self.request.take(), session)] {
                if let Some(client) = client {
                    measure::finished(cx, &client, None, asks, self.session_requested_at());
                    if counted > 0 {
                        counted -= 1;
                        continue;
                    }
                    cx.never_answered(client.first, &format!("{}: {what}", client.method));
                }
            }
        }
    }
}
