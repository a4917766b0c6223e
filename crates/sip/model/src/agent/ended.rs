//! Calls that the other side ends. Whoever hangs up, the call is completed (RFC 6076 section 4.9).

use super::expected::matches;
use super::{Event, UserAgent};
use crate::description::counter;
use crate::method::Method;
use crate::scenario::{Op, reason};
use protocol::cause::Cause;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;

/// Why a call ended whose scenario had more to do in it.
const ENDED: &str = "the other side ended the call";

impl UserAgent {
    /// A BYE of the other side is being accepted.
    pub(super) fn ended_by_peer(&mut self, cx: &mut Cx<'_>) {
        let crosses = self.says_bye();
        let Some(dialog) = &mut self.dialogs.dialog else { return };
        if std::mem::take(&mut dialog.session)
            && let Some(asked) = dialog.asked
        {
            cx.count(asked, counter::SESSIONS_COMPLETED);
            if !crosses {
                cx.count(asked, counter::CALLS_ENDED_BY_CALLEE);
            }
        }
    }

    /// The other side ends the call, which no step waits for.
    pub(super) fn hung_up(&mut self, cx: &mut Cx<'_>) {
        // both sides hang up: ours has yet to be answered
        let crosses = self.says_bye();
        self.respond(cx, false, 200, reason(200), b"", b"");
        // whoever hung up first, the call is over
        if crosses || self.leaving.is_some() {
            return;
        }
        match self.behind_bye() {
            Some(next) => {
                self.go_to(next);
                self.due = cx.now;
            }
            None => self.fail(cx, Cause::named(Failure::Closed, ENDED), || ENDED.into()),
        }
    }

    /// Whether a BYE of our own is under way.
    fn says_bye(&self) -> bool {
        self.dialogs.request.as_ref().is_some_and(|request| request.method == Method::Bye)
    }

    /// Whether `code` says of our BYE that the call is over already, as the other side's BYE was accepted before.
    pub(super) fn is_over_already(&self, method: Method, code: u16, call: u64) -> bool {
        let ended = |one: &crate::transaction::Server| {
            one.method == Method::Bye && one.call == call && (200..300).contains(&one.status)
        };
        method == Method::Bye && code == 481 && self.dialogs.requested.as_ref().is_some_and(|one| ended(one))
    }

    /// Where a scenario goes on that has nothing left to do in the call but to end it: behind the answer to its BYE.
    fn behind_bye(&self) -> Option<u16> {
        let steps = self.config.steps(self.at);
        let pauses = steps.iter().take_while(|op| matches!(op, Op::Pause(_))).count();
        let [Op::Send(bye), Op::Expect(answers), ..] = steps.get(pauses..)? else { return None };
        let ended =
            Event::Response { method: Method::Bye, status: 200, first: Time::ZERO, delay: 0, dropped: false };
        let taken = answers.iter().find(|one| matches(one, self.dialogs.selected(), &ended, Method::Bye))?;
        let behind = u16::try_from(usize::from(self.at) + pauses + 2).ok()?;
        (bye.method == Method::Bye && bye.leg == self.dialogs.selected())
            .then(|| taken.then.unwrap_or(behind))
    }
}
