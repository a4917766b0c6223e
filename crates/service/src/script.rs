//! A server that plays a script to each connection: send, expect, delay, repeat, as the `script` model of clients does.
//!
//! Each `expect` that finds its match is a request, each `send` a response. The connection is closed after the last step, or when
//! what is expected has not come in time.

#[cfg(test)]
mod tests;

use crate::settings::SettingsError;
use crate::share::Share;
use crate::{ConnectionId, Counters, Output, Service, Settings};
use protocol::script::{DEPTH_MAX, KEPT_MAX, Op, Params, Step};
use protocol::template::Values;
use protocol::time::Time;
use protocol::unit::Interval;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Deserialize;

/// A wait without a limit.
const FOREVER: u64 = 365 * 86_400;
/// Steps that one call plays before other connections are served.
const STEPS_PER_CALL: usize = 256;
/// Bytes of replies after which a connection waits until they are sent.
const TURN: usize = 256 << 10;

/// What is played.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Steps, as in the `script` model of a profile. `repeat` with `count: 0` lasts as long as the connection.
    pub steps: Vec<Step>,
    /// Longest wait for each `expect`; the connection is closed then. Default: no limit.
    #[serde(default = "forever")]
    pub timeout: Interval,
}

fn forever() -> Interval {
    Interval::secs(FOREVER)
}

impl Script {
    fn compile(&self) -> Result<Vec<Op>, SettingsError> {
        let params = Params { steps: self.steps.clone(), timeout: self.timeout, data: None };
        params.ops().map_err(|problem| SettingsError { at: "script", what: problem.to_string() })
    }

    /// Reject steps that cannot be played.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.compile().map(drop)
    }
}

/// A server.
#[derive(Debug)]
pub struct ScriptServer {
    ops: Vec<Op>,
    drops: Share,
    rng: SmallRng,
    sessions: Vec<Session>,
    counters: Counts,
}

/// One connection.
#[derive(Debug, Default)]
struct Session {
    /// Number among all connections: `{device}` in templates.
    number: u32,
    /// What came and was not used.
    kept: Vec<u8>,
    /// How much of it holds no match.
    seen: usize,
    /// The step at hand, and whether it has begun.
    at: usize,
    waits: bool,
    /// When the step at hand is over.
    limit: u64,
    /// When it is called next, if it is.
    wake: Option<u64>,
    rounds: [u32; DEPTH_MAX],
    /// Number of the next send.
    next: u64,
    /// Sends are left out up to the next expect.
    silent: bool,
    /// The script is over.
    over: bool,
}

#[derive(Debug, Default)]
struct Counts {
    connections: u64,
    open: u64,
    requests: u64,
    responses: u64,
    dropped: u64,
    completed: u64,
    timeouts: u64,
    protocol_errors: u64,
    bytes_received: u64,
    bytes_sent: u64,
}

impl ScriptServer {
    /// A server with these settings, which were checked.
    pub fn new(settings: &Settings) -> Self {
        let ops = settings.script.as_ref().and_then(|script| script.compile().ok()).unwrap_or_default();
        Self {
            ops,
            drops: Share::new(settings.drop_share, settings.seed.wrapping_add(1)),
            rng: SmallRng::seed_from_u64(settings.seed),
            sessions: Vec::new(),
            counters: Counts::default(),
        }
    }

    /// Play steps until one has to wait.
    fn play(&mut self, id: ConnectionId, out: &mut Output) {
        let Self { ops, drops, rng, sessions, counters } = self;
        let Some(session) = sessions.get_mut(id.slot as usize).filter(|session| !session.over) else {
            return;
        };
        let mut sent = 0;
        for _ in 0..STEPS_PER_CALL {
            let Some(op) = ops.get(session.at) else {
                counters.completed += 1;
                session.over = true;
                return out.close(id);
            };
            match op {
                Op::Send(_) if session.silent => session.step(),
                Op::Send(template) => {
                    let values = Values { device: session.number, seq: session.next, now: Time(out.now) };
                    let before = out.bytes.len();
                    out.send(id, |bytes| template.render(values, rng, bytes));
                    sent += out.bytes.len() - before;
                    counters.bytes_sent += (out.bytes.len() - before) as u64;
                    counters.responses += 1;
                    session.next += 1;
                    session.step();
                    if sent > TURN {
                        break;
                    }
                }
                Op::Expect { pattern, within } => {
                    session.begin(out.now, within.as_nanos());
                    let unseen = session.kept.len() > session.seen;
                    match pattern.find(&session.kept, session.seen).filter(|_| unseen) {
                        Some(end) => {
                            session.kept.drain(..end);
                            counters.requests += 1;
                            session.silent = drops.draw();
                            counters.dropped += u64::from(session.silent);
                            session.step();
                        }
                        None if session.kept.len() > KEPT_MAX => {
                            counters.protocol_errors += 1;
                            session.over = true;
                            return out.close(id);
                        }
                        None if session.limit <= out.now => {
                            counters.timeouts += 1;
                            session.over = true;
                            return out.close(id);
                        }
                        None => {
                            session.seen = session.kept.len();
                            if within.as_secs() < FOREVER {
                                session.wake_at(session.limit, id, out);
                            }
                            return;
                        }
                    }
                }
                Op::Delay(time) => {
                    session.begin(out.now, time.as_nanos());
                    if session.limit > out.now {
                        return session.wake_at(session.limit, id, out);
                    }
                    session.step();
                }
                Op::Again { start, depth, count } => {
                    let rounds = &mut session.rounds[*depth];
                    *rounds = rounds.saturating_add(1);
                    if *count == 0 || *rounds < *count {
                        session.at = *start;
                    } else {
                        *rounds = 0;
                        session.at += 1;
                    }
                }
            }
        }
        session.wake_at(out.now, id, out);
    }
}

impl Session {
    fn begin(&mut self, now: u64, length: u128) {
        if !std::mem::replace(&mut self.waits, true) {
            self.limit = now.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        }
    }

    fn step(&mut self) {
        self.at += 1;
        self.waits = false;
        self.seen = 0;
    }

    /// Be called at this time. An earlier call asks again.
    fn wake_at(&mut self, at: u64, id: ConnectionId, out: &mut Output) {
        if self.wake.is_none_or(|wake| at < wake) {
            self.wake = Some(at);
            out.wake_at(id, at);
        }
    }
}

impl Service for ScriptServer {
    fn opened(&mut self, id: ConnectionId, out: &mut Output) {
        let slot = id.slot as usize;
        if self.sessions.len() <= slot {
            self.sessions.resize_with(slot + 1, Session::default);
        }
        self.sessions[slot] = Session { number: self.counters.connections as u32, ..Session::default() };
        self.counters.connections += 1;
        self.counters.open += 1;
        self.play(id, out);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8], out: &mut Output) -> usize {
        self.counters.bytes_received += bytes.len() as u64;
        if let Some(session) = self.sessions.get_mut(id.slot as usize).filter(|session| !session.over) {
            session.kept.extend_from_slice(bytes);
            // while it waits for its time, what comes is for later steps
            if session.kept.len() > KEPT_MAX + (64 << 10) {
                self.counters.protocol_errors += 1;
                session.over = true;
                out.close(id);
            }
            self.play(id, out);
        }
        bytes.len()
    }

    fn timer(&mut self, id: ConnectionId, out: &mut Output) {
        if let Some(session) = self.sessions.get_mut(id.slot as usize) {
            session.wake = None;
        }
        self.play(id, out);
    }

    fn closed(&mut self, id: ConnectionId, _: &mut Output) {
        if let Some(session) = self.sessions.get_mut(id.slot as usize) {
            *session = Session { over: true, ..Session::default() };
        }
        self.counters.open -= 1;
    }

    fn counters(&self) -> Counters {
        let Counts { connections, open, requests, responses, dropped, .. } = self.counters;
        let Counts { completed, timeouts, protocol_errors, bytes_received, bytes_sent, .. } = self.counters;
        Counters::from([
            ("connections", connections),
            ("open_connections", open),
            ("requests", requests),
            ("responses", responses),
            ("dropped_responses", dropped),
            ("scripts_completed", completed),
            ("expect_timeouts", timeouts),
            ("protocol_errors", protocol_errors),
            ("bytes_received", bytes_received),
            ("bytes_sent", bytes_sent),
        ])
    }
}
