//! Steps of the scenario, one after the other.

use super::expected::{is_other_response, matches};
use super::{Event, LINGER, REST, Stage, UserAgent};
use crate::callees::CALLED_EARLY;
use crate::method::Method;
use crate::scenario::{ASSERTION, Alternative, Assertion, ExpectedMessage, Op, Set, When, reason, rejected};
use protocol::cause::Cause;
use protocol::meter::{Failure, Phase};
use protocol::model::Cx;
use protocol::template::Template;
use protocol::time::Time;
use rand::Rng;
use std::sync::Arc;

/// Steps in one callback, at most: a scenario that goes round without waiting lets others have their turn.
const STEPS_A_TURN: usize = 64;
/// How often steps may go back on a refusal without a pause.
const RETURNS_MAX: u8 = 10;
/// Why a flow has failed that went back more often.
pub(super) const REDIRECTED: &str = "redirected over 10 times";
const REFUSED: &str = "refused over 10 times without a pause";

impl UserAgent {
    /// Play steps until one has to wait.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        for _ in 0..STEPS_A_TURN {
            if !matches!(self.stage, Stage::Running | Stage::Stopping) {
                return;
            }
            let ended = usize::from(self.at) == config.leaving.scenario_end() && self.leaving.is_none();
            let Some(op) = config.ops.get(usize::from(self.at)).filter(|_| !ended) else {
                if self.leaving.is_some() {
                    if self.take_back_next(cx) {
                        continue;
                    }
                    return;
                }
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
                    if (101..300).contains(&answer.status)
                        && self.dialogs.answers_invite
                        && self.is_unacknowledged()
                    {
                        break;
                    }
                    self.answer(cx, answer);
                    self.next(cx);
                }
                Op::Set(set) => {
                    if !self.set(cx, set) {
                        return;
                    }
                }
                Op::Assert(assertion) => {
                    if !self.assert(cx, assertion) {
                        return;
                    }
                }
                Op::Pause(pause) => {
                    if self.until == Time::ZERO {
                        self.until = self.due + *pause;
                    }
                    // the load is over: a call is not held for longer than its keys take
                    if self.until > cx.now && (self.stage == Stage::Running || self.is_pressing()) {
                        if *pause >= REST {
                            self.inbox.shrink_to_fit();
                        }
                        break;
                    }
                    let due = self.until.min(cx.now);
                    if !pause.is_zero() {
                        self.returns = 0;
                    }
                    self.was_idle_for(*pause);
                    self.next(cx);
                    self.due = due;
                }
                Op::Jump { to, when } => {
                    if self.holds(cx, *when) {
                        self.go_to(*to);
                    } else {
                        self.pass();
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

    /// Make a value. False: it cannot be made, and the flow ended.
    fn set(&mut self, cx: &mut Cx<'_>, set: &Set) -> bool {
        let mut text = Vec::new();
        self.render(&set.value, cx, &mut text);
        match set.of(&text) {
            Ok(value) => {
                self.captured[set.slot] = value;
                self.pass();
                true
            }
            Err(why) => {
                self.fail(cx, Cause::named(Failure::Rejected, ASSERTION), || why);
                false
            }
        }
    }

    /// Whether a condition holds; else the flow ended.
    fn assert(&mut self, cx: &mut Cx<'_>, assertion: &Assertion) -> bool {
        let mut rendered = |template: &Template| {
            let mut text = Vec::new();
            self.render(template, cx, &mut text);
            text
        };
        let value = rendered(&assertion.value);
        let [is, is_not] = [&assertion.is, &assertion.is_not].map(|one| one.as_ref().map(&mut rendered));
        let Some(fault) = assertion.fault(&value, is.as_deref(), is_not.as_deref()) else {
            self.pass();
            return true;
        };
        self.fail(cx, Cause::named(Failure::Rejected, ASSERTION), || fault);
        false
    }

    /// The next step, which falls due with this one.
    fn pass(&mut self) {
        self.at += 1;
        self.until = Time::ZERO;
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
        let in_call = self.in_any_session()
            || self.dialogs.invited.as_ref().is_some_and(|invited| invited.status < 200);
        requests && !in_call
    }

    pub(super) fn next(&mut self, cx: &Cx<'_>) {
        self.at += 1;
        self.until = Time::ZERO;
        self.due = cx.now;
    }

    pub(super) fn go_to(&mut self, to: u16) {
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
        let steps = self.config.steps(0);
        let end = steps
            .iter()
            .rposition(|op| matches!(op, Op::Again { .. }))
            .map_or(steps.len(), |again| again + 1);
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
                Some(label) if self.returns_too_often(cx, event, label) => {}
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

    /// Whether steps go back to `label` on a refusal as often as they may without a pause: then the flow has failed.
    fn returns_too_often(&mut self, cx: &mut Cx<'_>, event: Event, label: u16) -> bool {
        let Event::Response { method, status, .. } = event else { return false };
        if status < 300 {
            self.returns = if status < 200 { self.returns } else { 0 };
            return false;
        }
        if label > self.at {
            return false;
        }
        self.returns += 1;
        if self.returns <= RETURNS_MAX {
            return false;
        }
        let why = match status {
            300..=399 => REDIRECTED,
            _ => REFUSED,
        };
        self.fail(cx, Cause::named(Failure::Rejected, why), || {
            format!("{method} was answered with {status} {}: {why}", reason(status))
        });
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
                self.dialogs.answers_invite = method == Method::Invite;
                if method == Method::Ack {
                    // no answer is due: a further one is to what came before
                    self.dialogs.answers_invite = self.dialogs.requested.is_none();
                }
            }
        }
    }

    /// A final response came that the scenario does not go on with.
    fn refused(&mut self, cx: &mut Cx<'_>, event: Event) {
        if let Event::Response { method, status, first, delay, .. } = event {
            // it is an answer: nothing was lost
            let reason = reason(status);
            cx.delay(first, delay);
            if method == Method::Invite && self.is_called_early(status, first) {
                return self.fail(cx, Cause::named(Failure::Local, CALLED_EARLY), || {
                    format!("{method} was answered with {status} {reason} before the callee had registered")
                });
            }
            let later = self.retry_after.filter(|_| method != Method::Cancel);
            let later = later.map(|seconds| format!(" (Retry-After: {seconds} s)")).unwrap_or_default();
            self.fail(cx, rejected(status), || {
                format!("{method} was answered with {status} {reason}{later}")
            });
        }
    }
}
