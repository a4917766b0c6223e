"""The trials of a screening or a search, on disk as they come: whoever is killed goes on where he was.

A screening or a search is a program that always asks for the same trials in the same order, since all its
chances come from one seed. So it is resumed by running it again: what was measured before is answered from
the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from netdyno import files, paths, reading
from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.pairs import RepeatBudget, measure_with_repeats
from netdyno.stats.observation import Observation, Setting
from netdyno.stats.pairs import DisturbanceLimits

FORMAT = 1


@dataclass(frozen=True)
class TrialRecord:
    """One measurement of a record."""

    phase: str
    index: int
    """Its place in the phase, from 0."""
    seed: int
    setting: Setting
    """As it was asked for."""
    observation: Observation
    took: float
    """Seconds, with all that setting up took."""

    def document(self) -> dict[str, Any]:
        """As JSON; of the many counters only those that moved."""
        plain = asdict(self)
        plain["observation"]["counters"] = {k: v for k, v in self.observation.counters.items() if v}
        return plain

    @classmethod
    def of(cls, plain: dict[str, Any]) -> TrialRecord:
        """What `document` wrote."""
        return cls(
            str(plain["phase"]),
            int(plain["index"]),
            int(plain["seed"]),
            dict(plain["setting"]),
            Observation(**plain["observation"]),
            float(plain["took"]),
        )


def folder() -> Path:
    """Where the records are."""
    return paths.state() / "tuning"


class Record:
    """A file of trials, one a line, under a first line that says what they are for."""

    def __init__(self, path: Path, plan: dict[str, Any], run: str = "") -> None:
        """Go on with the file, or begin it; `plan` is what must be the same for its trials to be of use.

        `run` names the run that its trials are those of, if the file names none.
        """
        self.path, self.plan, self.run = path, plan, run
        self.trials: list[TrialRecord] = []
        """In the order in which they were asked for by this program."""
        self.fresh = 0
        """How many of them were measured now."""
        self._kept: list[TrialRecord] = []
        """Those of them that the file had."""
        self.on_trial: Callable[[TrialRecord], None] = lambda _: None
        self.on_fresh: Callable[[TrialRecord], None] = lambda _: None
        """Told of those that were measured now, before the others are."""
        self._notes: list[tuple[str, dict[str, Any]]] = []
        files.make_folder(path.parent, private=True)
        with files.os_errors(path):
            # Kept open and locked: two programs that add to one file would spoil both.
            self._file: IO[bytes] = files.open_private(path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            self._file.close()
            fix = "Wait for it to end, or take another --name"
            raise Error("ND-92-28", "another program adds to these trials", at=str(path), fix=fix) from e
        try:
            self._known = self._read()
        except BaseException:
            self.close()
            raise

    def measure(
        self, bench: SettingMeasurer, phase: str, index: int, setting: Setting, seed: int
    ) -> TrialRecord:
        """A trial, out of the file if it is there."""
        known = self._known.get(_key(phase, index, setting))
        if known is None:
            began = time.monotonic()
            seen = bench.measure(setting, seed)
            trial = TrialRecord(phase, index, seed, dict(setting), seen, time.monotonic() - began)
            self._append(trial.document())
            self._known[_key(phase, index, setting)] = trial
            self.fresh += 1
            self.on_fresh(trial)
        else:
            trial = known
            self._kept.append(known)
        self.trials.append(trial)
        self.on_trial(trial)
        return trial

    def fair(
        self, bench: SettingMeasurer, phase: str, index: int, setting: Setting, seed: int
    ) -> TrialRecord:
        """A trial; one that saw something and yet does not count, as it was disturbed, is measured again."""
        trial = self.measure(bench, phase, index, setting, seed)
        if trial.observation.valid or not trial.observation.metrics:
            return trial
        return self.measure(bench, f"{phase} again", index, setting, seed)

    def measure_with_repeats(
        self,
        bench: SettingMeasurer,
        phase: str,
        index: int,
        setting: Setting,
        seed: int,
        spare: RepeatBudget,
        limits: DisturbanceLimits | None = None,
        after: Callable[[TrialRecord], None] = lambda trial: None,
    ) -> TrialRecord:
        """A trial, in its place again as long as it does not count and there are any to spare."""
        tries: list[TrialRecord] = []

        def once(attempt: int) -> Observation:
            again = f" again {attempt}" if attempt else ""
            tries.append(self.measure(bench, phase + again, index, setting, seed))
            return tries[-1].observation

        seen = measure_with_repeats(
            once, spare, limits, lambda seen: after(replace(tries[-1], observation=seen))
        )
        return replace(tries[-1], observation=seen)

    def note(self, what: str, **data: Any) -> None:
        """Keep what was planned or judged beside the trials; on disk when this returns."""
        self._append({"note": what, **data})
        self._notes.append((what, data))

    def noted(self, what: str) -> list[dict[str, Any]]:
        """All notes of that kind, also those of earlier calls, in order."""
        return [dict(data) for kind, data in self._notes if kind == what]

    @property
    def all_trials(self) -> list[TrialRecord]:
        """All that the file has, in the order in which they were measured."""
        return list(self._known.values())

    @property
    def reused(self) -> str:
        """How many of its trials were measured before, and when, in a line; empty: none."""
        if not self._kept:
            return ""
        when = measured_at(min(one.observation.started for one in self._kept))
        if not self.fresh:
            return f"all {len(self.trials):,} trials are from {when}; --fresh measures again"
        return f"{len(self._kept):,} of {len(self.trials):,} trials are from {when}"

    @property
    def took(self) -> float:
        """Seconds that all its trials took."""
        return sum(trial.took for trial in self.trials)

    def close(self) -> None:
        """Let go of the file."""
        # what a full disk did not take is tried once more
        with files.os_errors(self.path):
            self._file.close()

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: dict[str, Any]) -> None:
        with files.os_errors(self.path):
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _read(self) -> dict[tuple[str, int, str], TrialRecord]:
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            # the line that was being written when the power went
            self._file.truncate(whole)
        lines = text[:whole].splitlines()
        head = {"format": FORMAT, "plan": self.plan, "run": self.run}
        if not lines:
            self._append(head)
            return {}
        stored, *rest = _documents(lines, self.path)
        differs = _differing(stored.get("plan", {}), json.loads(json.dumps(self.plan)))
        if stored.get("format") != FORMAT or differs:
            what = f"these trials were begun otherwise: {', '.join(differs) or 'another format'} changed"
            fix = "Take another --name, or the same options as then"
            raise Error("ND-104-51", what, at=str(self.path), fix=fix)
        if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,127}", run := str(stored.get("run", ""))):
            self.run = run
        trials = [one for one in rest if "note" not in one]
        self._notes = [(str(one.pop("note")), one) for one in rest if "note" in one]
        found = (_trial(one, self.path) for one in trials)
        return {_key(t.phase, t.index, t.setting): t for t in found}


def measured_at(started: float) -> str:
    """When a trial was measured, in local time: the clock alone for one of today."""
    if not started:
        return "an earlier run"
    then, now = datetime.fromtimestamp(started).astimezone(), datetime.now().astimezone()
    return f"{then:%H:%M}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"


def read(path: Path) -> tuple[dict[str, Any], list[TrialRecord]]:
    """The plan and the trials of a record; a line that is not whole is left out."""
    text = reading.content(path)
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    if not lines:
        raise Error("ND-104-51", "there are no trials in it", at=str(path))
    head, *rest = _documents(lines, path)
    return dict(head.get("plan", {})), [_trial(one, path) for one in rest if "note" not in one]


def _documents(lines: list[bytes], path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            document = reading.parsed(line, f"{path}:{number}")
        except ValueError as e:
            raise _damaged(path, number) from e
        if not isinstance(document, dict):
            raise _damaged(path, number)
        yield document


def _trial(plain: dict[str, Any], path: Path) -> TrialRecord:
    try:
        return TrialRecord.of(plain)
    except (KeyError, TypeError, ValueError) as e:
        raise Error("ND-104-51", "a trial in it is not as it was written", at=str(path)) from e


def _damaged(path: Path, number: int) -> Error:
    fix = "Take another --name; what is damaged is left as it is"
    return Error("ND-104-51", "it is not a record of trials", at=f"{path}:{number}", fix=fix)


def _key(phase: str, index: int, setting: Setting) -> tuple[str, int, str]:
    return phase, index, json.dumps(dict(setting), sort_keys=True)


def _differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
