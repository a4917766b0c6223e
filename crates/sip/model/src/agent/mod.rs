//! A user agent: plays its scenario over one connection.
//!
//! The scenario says what comes next; what no step has to say is done here: requests are sent again over UDP and given up
//! (RFC 3261 section 17), failures to INVITE acknowledged, challenges answered (section 22), requests answered again that
//! came again, and those answered that no step waits for.

mod called;
mod dialogs;
mod ended;
mod expected;
mod failover;
#[cfg(any(test, feature = "testing"))]
mod footprint;
mod fork;
mod leaving;
mod lifetime;
mod media;
mod next_hop;
mod parting;
mod play;
mod receive;
mod redirect;
mod refresh;
mod refuse;
mod reliable;
mod respond;
mod response;
mod send;
mod server;
#[cfg(test)]
mod tests;
mod timers;
mod unacknowledged;
mod websocket;

use crate::auth::Credentials;
use crate::config::Config;
use crate::measure;
use crate::method::Method;
use crate::scenario::{Alternative, DEPTH_MAX, ExpectedMessage, Op};
use crate::transaction::Server;
use dialogs::Dialogs;
use fork::Fork;
use leaving::{Binding, TakingBack};
use media::CallMedia;
use protocol::media::MediaPacket;
use protocol::meter::Failure;
use protocol::model::{Cx, Model};
use protocol::time::Time;
use redirect::Targets;
pub(crate) use refresh::SessionClock;
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
/// Pauses of this length are worth giving memory back for.
const REST: Duration = Duration::from_secs(1);

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
    /// The same of sessions; 0: it has not said so in this flow.
    min_se: u32,
    /// How often steps went back on a refusal, without a pause.
    returns: u8,
    /// When the last final response said that the request may come again.
    retry_after: Option<u32>,
    /// Its dialogs, each with its transactions.
    dialogs: Dialogs,
    /// Requests that were answered before, which may come again.
    past: VecDeque<Box<Server>>,
    /// Answers to INVITEs that are not under way any more and have no ACK yet.
    unacknowledged: VecDeque<PendingAck>,
    /// With the number of the dialog.
    inbox: VecDeque<(u8, Event)>,
    reliable: Option<Box<Reliable>>,
    /// Where the present call may still be redirected to.
    targets: Option<Box<Targets>>,
    /// Values that steps took from messages of this flow.
    captured: Box<[Vec<u8>]>,
    /// Further callees of the last call that was answered.
    forks: Vec<Fork>,
    auth: Credentials,
    /// Whether a binding of the address of record to `local` is with the server, and what else is.
    bound: bool,
    bindings: Box<[Binding]>,
    /// The run is over, and this is taken back.
    leaving: Option<Box<TakingBack>>,
    local: SocketAddr,
    /// The server's address, where it is known.
    peer: Option<SocketAddr>,
    websocket: Option<Box<::websocket::Socket>>,
    /// Address of the media socket for RTP, the audio of the present call, what its INVITE offers, and the source of the peer
    /// in the call before.
    media_address: Option<SocketAddr>,
    media: Option<Box<CallMedia>>,
    offered: Option<Box<Sdp>>,
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
            dialogs: Dialogs::new(config.legs),
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
            min_se: 0,
            returns: 0,
            retry_after: None,
            past: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            inbox: VecDeque::new(),
            reliable: None,
            targets: None,
            captured: Box::default(),
            forks: Vec::new(),
            auth: Credentials::default(),
            bound: false,
            bindings: Box::default(),
            leaving: None,
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
        self.fail_since(cx, cx.now, why, what);
    }

    /// The same; it counts to `at`.
    fn fail_since(
        &mut self,
        cx: &mut Cx<'_>,
        at: Time,
        why: impl Into<protocol::cause::Cause>,
        what: impl FnOnce() -> String,
    ) {
        cx.failure(at, why, what);
        if self.leaving.is_some() {
            return self.taking_back_failed(cx);
        }
        self.sum_up_media(cx);
        self.registration_failed(cx);
        self.leave();
        cx.wake_at(Time::NEVER);
        self.armed = Time::NEVER;
        cx.give_up();
    }

    /// The flow is over: forget what is under way.
    fn leave(&mut self) {
        self.leave_all_but(false);
    }

    /// The same, but calls that are to be taken back, if `calls`.
    fn leave_all_but(&mut self, calls: bool) {
        let selected = self.dialogs.selected();
        for leg in self.legs() {
            self.select(leg);
            self.keep_unacknowledged();
            let (invited, requested) = (self.dialogs.invited.take(), self.dialogs.requested.take());
            self.remember(invited);
            self.remember(requested);
        }
        self.select(selected);
        self.stage = Stage::Idle;
        self.parted = false;
        self.silent = Time::NEVER;
        self.dialogs.clear(calls);
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
        self.keep_binding(self.config.one_user);
        self.at = 0;
        self.rounds = [0; DEPTH_MAX];
        self.min_se = 0;
        self.returns = 0;
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
                self.keep_binding(local == self.local || self.config.websocket.is_some());
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
        let local = cx.local.unwrap_or(self.local);
        self.keep_binding(local == self.local || self.config.websocket.is_some());
        self.local = local;
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
        self.refuse_pending(cx);
        self.forget(cx, 0, "no final response by the end of the drain");
        self.leave_all_but(true);
    }

    fn leaves_behind(&self) -> bool {
        self.has_left()
    }

    fn clean_up(&mut self, cx: &mut Cx<'_>) {
        self.take_back(cx);
    }

    fn cleaned_up(&mut self, cx: &mut Cx<'_>) {
        self.count_taken_back(cx);
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
            let (invite, request) = (self.dialogs.invite.take(), self.dialogs.request.take());
            for (client, asks) in [(&invite, !session), (&request, session)] {
                if let Some(client) = client {
                    measure::finished(cx, client, None, asks, self.session_requested_at());
                    if counted > 0 {
                        counted -= 1;
                        continue;
                    }
                    cx.never_answered(client.first, &format!("{}: {what}", client.method));
                }
            }
            // it may be cancelled yet
            self.dialogs.invite = invite.filter(|invite| invite.provisional);
        }
    }
}
