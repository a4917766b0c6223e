//! The end of a run: a user agent takes back what it left with its server, so that the next run finds it as this one did.
//!
//! Calls that ring are cancelled (RFC 3261 section 9.1: once a provisional response has come), those that are up get a BYE, and
//! bindings are removed (section 10.2.2). The steps are behind those of the scenario; nobody measures them.

use super::dialogs::DialogState;
use super::{Stage, UserAgent};
use crate::description::counter;
use crate::scenario::{Op, reason};
use crate::transaction::Client;
use protocol::model::Cx;
use protocol::time::Time;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Bindings of one user agent besides the latest that are remembered, at most.
const BINDINGS_MAX: usize = 64;

/// A binding that a server has: of which flow's address of record, and to which address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Binding {
    flow: u64,
    at: SocketAddr,
}

#[derive(Debug, Clone, Copy)]
enum Task {
    /// Of the dialog with this number.
    Cancel(u8),
    Bye(u8),
    Remove(Binding),
}

impl Task {
    /// Counters: of those that were done, and of those that were not.
    fn counters(self) -> (usize, usize) {
        match self {
            Self::Cancel(_) => (counter::CALLS_CANCELLED, counter::CALLS_LEFT),
            Self::Bye(_) => (counter::CALLS_RELEASED, counter::CALLS_LEFT),
            Self::Remove(_) => (counter::BINDINGS_REMOVED, counter::BINDINGS_LEFT),
        }
    }
}

/// What is taken back, one after the other.
#[derive(Debug, Default)]
pub(super) struct TakingBack {
    tasks: VecDeque<Task>,
    present: Option<Task>,
    done: Vec<Task>,
    left: Vec<Task>,
}

impl DialogState {
    /// Whether its call goes on without us: it is up, or it rings.
    pub fn is_left(&self) -> bool {
        self.is_up() || self.invite.as_ref().is_some_and(|invite| invite.provisional)
    }

    /// Whether the other side's call has yet to be answered.
    fn is_pending(&self) -> bool {
        self.invited.as_ref().is_some_and(|invited| invited.status < 200)
    }
}

impl UserAgent {
    /// `client`, a REGISTER, was accepted.
    pub(super) fn registration_changed(&mut self, client: &Client) {
        let Some(Op::Send(request)) = self.config.ops.get(usize::from(client.step)) else { return };
        self.bound = request.expires.unwrap_or(self.config.expires) > 0;
        let binding = self.binding();
        let same = |one: &Binding| one.at == binding.at && (self.config.one_user || one.flow == binding.flow);
        if self.bindings.iter().any(same) {
            self.bindings = self.bindings.iter().filter(|one| !same(one)).copied().collect();
        }
    }

    fn binding(&self) -> Binding {
        Binding { flow: self.flow, at: self.local }
    }

    /// The present binding is no more that of the address of record and address of what comes next, unless they are the `same`.
    pub(super) fn keep_binding(&mut self, same: bool) {
        if same || !self.bound || self.leaving.is_some() {
            return;
        }
        self.bound = false;
        if !self.config.keep_bindings && self.bindings.len() < BINDINGS_MAX {
            self.bindings = self.bindings.iter().copied().chain([self.binding()]).collect();
        }
    }

    /// Whether something is left that is to be taken back.
    pub(super) fn has_left(&self) -> bool {
        let bound = self.bound || !self.bindings.is_empty();
        bound && !self.config.keep_bindings
            || self.dialogs.all().iter().any(|state| state.is_left() || state.is_pending())
    }

    fn tasks(&mut self) -> VecDeque<Task> {
        let mut tasks = VecDeque::new();
        for (leg, state) in (0..).zip(self.dialogs.all()) {
            match state.is_up() {
                true => tasks.push_back(Task::Bye(leg)),
                false if state.is_left() => tasks.push_back(Task::Cancel(leg)),
                false => {}
            }
        }
        let present = std::mem::take(&mut self.bound).then(|| self.binding());
        let bindings = std::mem::take(&mut self.bindings);
        if !self.config.keep_bindings {
            tasks.extend(present.into_iter().chain(bindings).map(Task::Remove));
        }
        tasks
    }

    /// Calls to us that have yet to be answered end.
    pub(super) fn refuse_pending(&mut self, cx: &mut Cx<'_>) {
        for leg in self.legs() {
            self.select(leg);
            if self.dialogs.is_pending() {
                self.respond(cx, true, 480, reason(480), b"", b"");
            }
        }
    }

    /// Begin.
    pub(super) fn take_back(&mut self, cx: &mut Cx<'_>) {
        let tasks = self.tasks();
        self.leaving = Some(Box::new(TakingBack { tasks, ..TakingBack::default() }));
        self.at = self.config.leaving.end();
        self.until = Time::ZERO;
        self.due = cx.now;
        self.armed = Time::NEVER;
        self.heard = false;
        self.kept = cx.local.is_some();
        self.auth.clear();
        match cx.local {
            Some(local) if self.is_carried() => {
                (self.local, self.peer) = (local, cx.peer);
                self.stage = Stage::Stopping;
                self.advance(cx);
            }
            _ => {
                self.websocket = None;
                self.stage = Stage::Connecting;
                cx.connect();
            }
        }
    }

    /// The present task is done. Whether there is another.
    pub(super) fn take_back_next(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(mut all) = self.leaving.take() else { return false };
        all.done.extend(all.present.take());
        let mut begun = false;
        let steps = self.config.leaving;
        while !begun && let Some(task) = all.tasks.pop_front() {
            begun = match task {
                Task::Cancel(leg) | Task::Bye(leg) => {
                    self.select(leg);
                    let cancels = self.dialogs.invite.is_some() && !self.dialogs.is_up();
                    self.go_to(if cancels { steps.cancel(leg) } else { steps.bye(leg) });
                    cancels || self.dialogs.is_up()
                }
                Task::Remove(binding) => {
                    self.select(0);
                    self.flow = binding.flow;
                    self.local = binding.at;
                    self.go_to(steps.removal());
                    true
                }
            };
            if begun {
                all.present = Some(task);
            } else {
                // the other side ended it meanwhile
                all.done.push(task);
            }
        }
        self.due = cx.now;
        self.inbox.clear();
        self.leaving = Some(all);
        if !begun {
            self.complete(cx);
        }
        begun
    }

    /// The present task failed: the next one begins as soon as this returns.
    pub(super) fn taking_back_failed(&mut self, cx: &mut Cx<'_>) {
        let Some(all) = &mut self.leaving else { return };
        all.left.extend(all.present.take());
        self.dialogs.request = None;
        self.at = self.config.leaving.end();
        self.until = Time::ZERO;
        self.inbox.clear();
        self.signalling = cx.now;
        self.armed = cx.now;
        cx.wake_at(cx.now);
    }

    /// It is over, or its time is.
    pub(super) fn count_taken_back(&mut self, cx: &mut Cx<'_>) {
        let mut all = self.leaving.take().unwrap_or_default();
        all.left.extend(all.present.take());
        all.left.extend(all.tasks.drain(..));
        all.left.extend(self.tasks());
        let measured = cx.window.measure;
        for task in all.done {
            cx.count(measured, task.counters().0);
        }
        for task in all.left {
            cx.count(measured, task.counters().1);
        }
        self.leave();
    }
}
