//! What is the same for all user agents of a group.

use crate::aka::AkaTemplates;
use crate::callees::Callees;
use crate::identity::Signature;
use crate::late_audio::LateAudio;
use crate::media::MediaConfig;
use crate::scenario::{Header, Leaving, Op};
use crate::session_timer::SessionTimer;
use protocol::target::Scheme;
use protocol::template::Template;
use std::sync::Arc;
use std::time::Duration;

/// What a WebSocket handshake asks for.
#[derive(Debug)]
pub(crate) struct Resource {
    /// Host, and the port where it is not the scheme's.
    pub host: String,
    pub path: String,
}

/// What is the same for all user agents of a group.
#[derive(Debug)]
pub struct Config {
    /// The scenario's steps, and behind them those of [`Leaving`].
    pub(crate) ops: Box<[Op]>,
    pub(crate) leaving: Leaving,
    /// Requests that refresh sessions, by dialog; none without session timers.
    pub(crate) refreshes: Box<[Op]>,
    pub(crate) session_timer: Option<SessionTimer>,
    /// How many values steps take from messages.
    pub(crate) captures: usize,
    /// How many dialogs they have.
    pub(crate) legs: u8,
    /// Whether reliable provisional responses are acknowledged without a step.
    pub(crate) acknowledges_provisionals: bool,
    pub(crate) user: Template,
    pub(crate) auth_user: Template,
    pub(crate) password: Option<Template>,
    pub(crate) aka: Option<AkaTemplates>,
    /// Who signs calls; none: nobody does.
    pub(crate) identity: Option<Signature>,
    pub(crate) reuse_nonce: bool,
    pub(crate) domain: Template,
    pub(crate) callee: Template,
    pub(crate) expires: u64,
    /// Whether registrations stay with the server when the run is over.
    pub(crate) keep_bindings: bool,
    /// Whether each flow of a user agent registers the same address of record.
    pub(crate) one_user: bool,
    pub(crate) t1: Duration,
    pub(crate) t2: Duration,
    /// Timers B and F.
    pub(crate) timeout: Duration,
    pub(crate) sdp_size: usize,
    /// Audio; none: calls have none.
    pub(crate) media: Option<MediaConfig>,
    /// Whether the server may send its requests over our connections (RFC 5923).
    pub(crate) alias: bool,
    /// Whether requests within a dialog go to the server.
    pub(crate) outbound_proxy: bool,
    /// Whether a call goes to the Contacts of a 3xx that no step waits for.
    pub(crate) follow_redirects: bool,
    pub(crate) headers: Box<[Header]>,
    pub(crate) scheme: Scheme,
    /// What a WebSocket connection asks the server for; none: SIP is in the stream itself.
    pub(crate) websocket: Option<Resource>,
    /// Whether the transport delivers what it is given, so that nothing is sent again.
    pub(crate) reliable: bool,
    pub(crate) run: u64,
    /// The run's callees, where these call or are called by number: those that are called register themselves first.
    pub(crate) callees: Option<Arc<Callees>>,
    pub(crate) is_callee: bool,
    /// When the run's user agents were late with audio.
    pub(crate) late_audio: Arc<LateAudio>,
}

impl Config {
    /// The scenario's own steps from number `at` on.
    pub(crate) fn steps(&self, at: u16) -> &[Op] {
        self.ops.get(usize::from(at)..self.leaving.scenario_end()).unwrap_or_default()
    }

    /// Whether URIs are `sips:`. Over WebSocket they are `sip:`, with and without TLS (RFC 7118 section 5.2.2).
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme.tls && self.websocket.is_none()
    }
}
