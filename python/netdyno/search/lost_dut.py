"""Whether the DUT still answers: after a trial in which it fell silent, a light load tells.

A DUT may collapse under an overload and recover: that is its limit, and a result. One that crashed, hangs or
answers every request with an error does not recover: what a search made of its silence would be no property
of it. So before a strategy sees a trial at whose end nothing was delivered any more, the lowest load that
passed before is offered again, up to three times, each longer than the one before. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from netdyno.core import causes, totals
from netdyno.core.result import Repetition
from netdyno.core.wire import Counts, GroupResult
from netdyno.errors import Error
from netdyno.search import words
from netdyno.search.request import PartSearch
from netdyno.search.trial import LoadTrial, SilentGroup, TrialRequest
from netdyno.stats.checks import answers
from netdyno.stats.last_answer import clock, last_answer_s

TAIL = 0.25
"""Share of the measure phase, its end, in which a DUT that has fallen silent delivers nothing."""
SECONDS = (2.0, 5.0)
"""Length of the first checks; the last is as long as the trial that passed."""
CHECKS = len(SECONDS) + 1
LIGHT = 0.05
"""Of the highest load: what a DUT is checked with of which no load has passed."""
OURS = "local"
"""Kind of failures of the generator itself."""
STOPPED, NEVER = "lost", "never"
WHY = {STOPPED: "the DUT stopped answering", NEVER: "the DUT never answered"}
"""Why trials do not count, and a search ended."""

Verdict = Literal["again", "answers", "lost", "never"]


def silent(repetition: Repetition, names: Collection[str], *, tail: bool = True) -> tuple[SilentGroup, ...]:
    """The groups that nobody answered: in the whole trial, or with `tail` at its end."""
    found = []
    for group in repetition.groups:
        counts = group.measured
        if group.name not in names or not (counts.messages_sent or _refusals(counts)):
            continue
        if not came(group):
            found.append(SilentGroup(group.name, last_answer_s(repetition, group.name)))
        elif tail and (since := _fell_silent(repetition, group)) is not None:
            found.append(SilentGroup(group.name, since))
    return tuple(found)


def _refusals(counts: Counts) -> int:
    """Failures that tell of the DUT: not those of a generator that lacked ports, files or memory."""
    return sum(count for kind, count in counts.failures.items() if kind != OURS)


def came(group: GroupResult) -> int:
    """How much was delivered of what a group asked; steps that a user wrote count flows."""
    return group.measured.messages_delivered if group.measured.messages_sent else answers(group)


def _fell_silent(repetition: Repetition, group: GroupResult) -> float | None:
    """When the last answer came, in seconds from the start, if none came in the tail of the measure phase."""
    points = [one for one in repetition.series if one.phase == "measure" and group.name in one.groups]
    if not group.measured.messages_sent or len(points) < 2:
        return None
    end, length = points[-1].t, sum(one.dt for one in points)
    last = [one.groups[group.name] for one in points if one.t > end - max(TAIL * length, points[-1].dt)]
    asked = any(one.counts.messages_sent or _refusals(one.counts) or one.waiting for one in last)
    if not asked or any(one.counts.messages_delivered for one in last):
        return None
    return max((one.t for one in points if one.groups[group.name].counts.messages_delivered), default=0.0)


@dataclass
class Suspect:
    """A trial in which the DUT fell silent, and its checks so far."""

    part: PartSearch
    ask: TrialRequest
    seen: LoadTrial
    checks: int = 0
    elsewhere: PartSearch | None = None
    """Another part, in which the DUT answered: whether it still does there."""


class Watch:
    """Follows all trials of a search; between two of a strategy it may ask for checks."""

    def __init__(self) -> None:
        self.suspect: Suspect | None = None
        self._passed: dict[str, TrialRequest] = {}
        self._parts: dict[str, PartSearch] = {}
        self._mute: set[str] = set()
        self._ever: set[str] = set()
        self._fixed = False

    def see(self, part: PartSearch, ask: TrialRequest, seen: LoadTrial, *, fixed: bool = False) -> bool:
        """Take a trial of a strategy. True: the DUT is to be checked before the strategy goes on.

        `fixed`: what a load is follows from the length of its trial, so that no other is offered.
        """
        self._note_answers(part, seen)
        if not seen.silent:
            if seen.answered and not seen.short:
                self._note(part, ask)
            return False
        if part.name in self._mute:
            return False
        self.suspect = Suspect(part, ask, seen)
        self._fixed = fixed
        return True

    def _note_answers(self, part: PartSearch, seen: LoadTrial) -> None:
        """Any answer, in whatever phase of whatever trial, tells that something answers there."""
        if seen.heard:
            self._ever.add(part.name)

    def _note(self, part: PartSearch, ask: TrialRequest) -> None:
        """That the DUT answered at a load."""
        self._parts[part.name] = part
        if part.name not in self._passed or ask.load < self._passed[part.name].load:
            self._passed[part.name] = ask

    def has_passed(self, part: PartSearch) -> bool:
        """Whether a load of a part was answered in a trial that counts."""
        return part.name in self._passed

    def check(self) -> tuple[PartSearch, TrialRequest] | None:
        """The check that is due."""
        if (suspect := self.suspect) is None:
            return None
        part = suspect.elsewhere or suspect.part
        ask = self._passed.get(part.name)
        if self._fixed and suspect.elsewhere is None:
            return part, replace(ask or suspect.ask, check=True)
        if ask is None:
            light = part.space.round(max(part.space.bottom, LIGHT * part.space.most))
            ask = TrialRequest(min(light, suspect.ask.load), part.space.seconds)
        length = (*SECONDS, ask.seconds)[min(suspect.checks, CHECKS - 1)]
        # a burst is as long as it is
        shape = ask.shape if ask.shape == "burst" else ""
        return part, TrialRequest(ask.load, min(length, ask.seconds), shape, check=True)

    def checked(self, seen: LoadTrial) -> Verdict:
        """Take the check's trial. `answers`: the strategy may see the trial that was in question."""
        suspect = self.suspect
        assert suspect is not None
        self._note_answers(suspect.elsewhere or suspect.part, seen)
        if not seen.silent and seen.answered:
            if suspect.elsewhere is not None:
                # what is special of this part never passes, and the DUT works
                self._mute.add(suspect.part.name)
            elif suspect.part.name not in self._passed:
                self._note(suspect.part, TrialRequest(seen.load, suspect.part.space.seconds))
            self.suspect = None
            return "answers"
        suspect.checks += 1
        if suspect.checks < CHECKS:
            return "again"
        if suspect.part.name in self._passed or suspect.elsewhere is not None:
            return "lost" if seen.silent else self._unknown()
        others = [name for name in self._passed if name != suspect.part.name]
        if others:
            suspect.elsewhere, suspect.checks = self._parts[others[-1]], CHECKS - 1
            return "again"
        if not seen.silent:
            return self._unknown()
        return "lost" if suspect.part.name in self._ever else "never"

    def _unknown(self) -> Verdict:
        # nothing was asked of it in a check that is so light: no evidence against it
        self.suspect = None
        return "answers"


def error(
    verdict: Verdict,
    suspect: Suspect,
    trial: Repetition,
    check: Repetition,
    ask: TrialRequest,
    *,
    passed: bool = True,
) -> Error:
    """What is said when the DUT is lost: since when, and how its requests failed."""
    names = {one.group for one in suspect.seen.silent}
    groups = [one for one in (*check.groups, *trial.groups) if one.name in names]
    known = (causes.measured(group.errors, group.measured) for group in groups)
    failed = totals.failures([one for errors in known for one in errors])
    how = causes.brief(failed) or "no answer"
    target = ", ".join(dict.fromkeys(group.target for group in groups if group.target))
    who, unit = ", ".join(sorted(names)), suspect.part.unit
    worst = max(failed, key=lambda one: one.count, default=None)
    advice = ""
    if worst is not None:
        first = next((one.cause for one in worst.causes if one.count), "")
        advice = causes.advice(worst.kind, first, target, answered=passed)
        advice = f"{advice[:1].upper()}{advice[1:]}"
    if verdict == NEVER:
        what = f"{who}: nothing was delivered at any load, down to {words.load(ask.load, unit)}: {how}"
        return Error("ND-91-30", what, at=target, fix=advice)
    load, light = words.load(suspect.seen.load, unit), words.load(ask.load, unit)
    before = ", which it did before" if passed else ""
    what = (
        f"{who}: the DUT stopped answering {_when(suspect.seen, trial)} (trial {suspect.seen.number}, "
        f"{load}), and does not answer at {light} either{before}: {how}"
    )
    if worst is not None and worst.kind == "refused":
        advice = "It refuses connections now"
    fix = "See why it stopped; start it again and resume with --resume"
    return Error("ND-91-29", what, at=target, fix=f"{advice}. {fix}" if advice else fix)


def _when(seen: LoadTrial, trial: Repetition) -> str:
    """Since when, UTC."""
    since = [one.since for one in seen.silent]
    if not clock(trial, 0):
        return "during the search"
    known = [one for one in since if one is not None]
    if not known or len(known) < len(since):
        return f"before {clock(trial, 0)}"
    return f"at about {clock(trial, min(known))}, {min(known):.1f} s after the start"
