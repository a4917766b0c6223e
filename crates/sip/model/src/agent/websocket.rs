//! SIP in WebSocket messages (RFC 7118): the handshake, each message, and how a connection ends.

use super::{Stage, UserAgent};
use protocol::cause::Cause;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use sip_core::message::{MAX_BODY, MAX_HEAD};
use std::sync::Arc;
use websocket::{Fault, Incoming, Socket};

/// The subprotocol (RFC 7118 section 4).
const SUBPROTOCOL: &str = "sip";
/// Why a connection never carried a message.
pub(super) const CLOSED_SHAKING: &str = "closed during the WebSocket handshake";

impl UserAgent {
    /// Whether the connection that is up can carry messages.
    pub(super) fn is_carried(&self) -> bool {
        self.config.websocket.is_none() || self.websocket.as_ref().is_some_and(|socket| socket.is_open())
    }

    /// Whether the server has yet to answer the handshake.
    pub(super) fn is_shaking(&self) -> bool {
        matches!(self.stage, Stage::Connecting | Stage::Reconnecting) && self.websocket.is_some()
    }

    /// Messages can be sent.
    pub(super) fn transport_up(&mut self, cx: &mut Cx<'_>) {
        let before = self.stage;
        if !matches!(before, Stage::Connecting | Stage::Reconnecting) {
            return;
        }
        self.stage = if cx.loading() { Stage::Running } else { Stage::Stopping };
        if before == Stage::Reconnecting {
            self.send_again(cx);
        }
        self.advance(cx);
    }

    /// Begin the handshake on a new connection.
    pub(super) fn begin_handshake(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        let Some(resource) = &config.websocket else { return };
        match Socket::client(&resource.host, &resource.path, SUBPROTOCOL, MAX_HEAD + MAX_BODY) {
            Ok(socket) => {
                let mut socket = Box::new(socket);
                socket.take(&mut cx.out.bytes);
                self.websocket = Some(socket);
                self.silent = cx.now;
                cx.wake_at(cx.now + config.timeout);
            }
            Err(fault) => {
                self.fail(cx, Failure::Local, || fault.to_string());
                cx.close();
            }
        }
    }

    /// The server has not answered the handshake in time.
    pub(super) fn handshake_timed_out(&mut self, cx: &mut Cx<'_>) {
        let end = self.silent + self.config.timeout;
        if cx.now < end {
            return cx.wake_at(end);
        }
        let cause = Cause::named(Failure::Timeout, "no answer to the WebSocket handshake");
        if self.leaves_handshake(cx, cause) {
            return;
        }
        self.websocket = None;
        self.fail(cx, cause, || "the server did not answer the WebSocket handshake in time".into());
        cx.close();
    }

    /// The connection is gone: say so where that was before the server answered the handshake.
    pub(super) fn explain_handshake(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if self.is_shaking() {
            let cause = Cause::named(why, CLOSED_SHAKING);
            cx.explain(cause, || "the server closed the connection during the WebSocket handshake".into());
        }
    }

    /// Bytes came.
    pub(super) fn websocket_received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) {
        if let Some(socket) = &mut self.websocket {
            socket.receive(bytes);
        }
        while let Some(socket) = &mut self.websocket {
            let next = socket.poll();
            // pongs, and the answer to a close
            socket.take(&mut cx.out.bytes);
            match next {
                Ok(Some(Incoming::Open)) => {
                    self.silent = Time::NEVER;
                    self.armed = Time::NEVER;
                    cx.wake_at(Time::NEVER);
                    self.transport_up(cx);
                }
                Ok(Some(Incoming::Message(message))) => {
                    self.heard = true;
                    self.message(cx, &message);
                    self.advance(cx);
                }
                Ok(None) => return,
                Err(fault) => self.fail_connection(cx, &fault),
            }
        }
    }

    /// Whether a connection that was kept from an earlier flow is opened again where it closes.
    pub(super) fn is_reopened(&self) -> bool {
        self.stage == Stage::Running && self.kept && !self.heard
    }

    /// The connection cannot go on.
    fn fail_connection(&mut self, cx: &mut Cx<'_>, fault: &Fault) {
        let kind = match fault {
            Fault::Refused { .. } => Failure::Rejected,
            Fault::Closed { .. } => Failure::Closed,
            _ => Failure::Protocol,
        };
        let cause = Cause::named(kind, fault.name());
        let closed = kind == Failure::Closed;
        let left = match (self.is_shaking(), kind) {
            (true, _) => self.leaves_handshake(cx, cause),
            (false, Failure::Closed) if !self.is_reopened() => self.leaves_server(cx, kind),
            _ => false,
        };
        self.websocket = None;
        if left {
            // what was for the old connection
            return cx.out.bytes.clear();
        }
        let stage = self.stage;
        match stage {
            Stage::Idle if closed => {}
            Stage::Idle => cx.failure(cx.now, cause, || fault.to_string()),
            // as over TCP: the server was free to close an idle connection just as we used it again
            Stage::Running if closed && self.is_reopened() => {
                self.kept = false;
                self.stage = Stage::Reconnecting;
                // what was for the old connection
                cx.out.bytes.clear();
                return cx.connect();
            }
            _ if closed && self.parts(cx, kind) => self.parted = true,
            _ => self.fail(cx, cause, || fault.to_string()),
        }
        cx.close();
    }
}
