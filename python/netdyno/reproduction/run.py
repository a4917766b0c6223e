"""Measure parts one after the other, each by a `netdyno` process of its own; resume what was interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from netdyno import __version__, files, reading
from netdyno.errors import INTERRUPTED
from netdyno.reproduction import part_result
from netdyno.reproduction.part import FOLDER, Part
from netdyno.reproduction.part_result import MEASURED, PartResult
from netdyno.reproduction.words import PlannedPart
from netdyno.system import environment, python
from netdyno.system.interrupt import Interrupts, interrupted
from netdyno.system.process import OutputReader, Process, last_lines

QUICK_LIMIT = 30 * 60.0
"""Seconds within which a quick reproduction ends."""
PROGRAM: Sequence[str] = python.module("netdyno")
"""How netdyno is started."""
PASSED = ("trial ", "study ", "look ", "ND-")
"""How messages begin that are passed on: trials and errors, but no samples."""
LOOK = 0.2
"""Seconds between two looks at a command's messages."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to measure, and where it is kept."""

    planned: Sequence[PlannedPart]
    folder: Path
    quick: bool = False
    fresh: bool = False
    """Measure again what is kept."""
    runs: Path | None = None
    """Folder of runs; none: the default."""
    limit: float | None = None
    """Seconds after which no part is to end; none: no limit."""
    program: Sequence[str] = field(default_factory=lambda: PROGRAM)
    """How netdyno is started."""
    clock: Callable[[], float] = time.monotonic


def measure(request: Request, note: Note, interrupts: Interrupts) -> Iterator[PartResult]:
    """Measure what is not kept yet, and yield each part. An interrupt raises; what is kept stays."""
    begun = request.clock()
    commit = _commit()
    for number, one in enumerate(request.planned, 1):
        part = one.part
        place = f"{number} of {len(request.planned)}, {one.id}"
        if part.missing:
            note(f"{place}: not measured: {part.missing}")
            yield _left_out(request, one, "missing", part.missing)
            continue
        there = part_result.read(request.folder, one.word, part.name)
        if there and not request.fresh and there.same(part.command, __version__, commit):
            note(f"{place}: kept from {there.started}")
            yield there
            continue
        left = None if request.limit is None else request.limit - (request.clock() - begun)
        if left is not None and part.seconds > left:
            why = f"it takes about {part.seconds / 60:.0f} min, and {max(left, 0.0) / 60:.0f} min were left"
            note(f"{place}: not measured: {why}; the same command measures it")
            yield _left_out(request, one, "no time", why)
            continue
        note(f"{place}: {part.title}; netdyno {' '.join(part.command)}")
        found = _measured(request, one, commit, note, interrupts)
        part_result.write(request.folder, found)
        yield found


def _commit() -> str:
    """The revision of the source that this runs from, with a mark where files were changed."""
    about = environment.git() or {}
    return f"{about['revision']}{'+' if about['dirty'] else ''}" if about else ""


def _base(request: Request, one: PlannedPart, state: Any, why: str = "") -> dict[str, Any]:
    part = one.part
    return {
        "system": one.word, "name": part.name, "title": part.title, "paper": part.paper, "state": state,
        "differences": [*part.differences], "why": why, "command": [*part.command], "quick": request.quick,
        "version": __version__,
    }  # fmt: skip


def _left_out(request: Request, one: PlannedPart, state: str, why: str) -> PartResult:
    return PartResult.model_validate(_base(request, one, state, why))


def _measured(
    request: Request, one: PlannedPart, commit: str, note: Note, interrupts: Interrupts
) -> PartResult:
    started, begun = datetime.now().astimezone().isoformat(timespec="seconds"), time.monotonic()
    folder = files.make_folder(request.folder / one.word)
    with tempfile.TemporaryDirectory(prefix="netdyno-reproduce-") as own:
        words = [word.replace(FOLDER, str(folder / one.part.name)) for word in one.part.command]
        more = {"NETDYNO_RUNS": str(request.runs.absolute())} if request.runs else {}
        log = Path(own) / "log"
        code, output = _command([*request.program, *words], log, more, note, interrupts)
        said = last_lines(log)
    if code == INTERRUPTED:
        raise interrupted()
    times = {
        "commit": commit,
        "started": started,
        "seconds": round(time.monotonic() - begun, 1),
        "exit": code,
    }
    if code not in MEASURED:
        why = "; ".join(said[-3:]) or f"its exit code is {code}"
        note(f"{one.id} failed: {why}")
        return PartResult.model_validate(_base(request, one, "failed", why) | times)
    try:
        document = reading.parsed(output, "the command's output")
        found = _summary(one.part, document, folder / one.part.name)
    except (KeyError, ValueError, TypeError, IndexError, StopIteration) as e:
        why = f"its output is not as expected: {type(e).__name__} {e}"
        return PartResult.model_validate(_base(request, one, "failed", why) | times)
    about = {
        "finding": found.finding, "heads": [*found.heads], "rows": [[*row] for row in found.rows],
        "plots": [*found.plots], "notes": [*found.notes], "run": found.run, "trusted": found.valid,
    }  # fmt: skip
    return PartResult.model_validate(_base(request, one, "measured") | times | about)


def _summary(part: Part, document: Any, folder: Path) -> Any:
    if part.summary is None:
        raise ValueError("nothing reads it")
    return part.summary(document, folder)


def _command(
    command: Sequence[str], log: Path, more: Mapping[str, str], note: Note, interrupts: Interrupts
) -> tuple[int, bytes]:
    """Run a command, pass its messages on, and pass interrupts to it; its exit code and output."""
    with interrupts.asking():
        process = Process(command, log=log, pipe_output=True, environment=more)
        reader = OutputReader(process)
        told, asked = 0, interrupts.count
        try:
            while (code := process.wait(LOOK)) is None:
                told = _pass_on(log, told, note)
                if interrupts.count > asked:
                    asked = interrupts.count
                    process.send(signal.SIGINT)
            reader.wait()
            _pass_on(log, told, note)
        finally:
            with interrupts.shielded():
                process.stop()
                output, _ = reader.finish()
    if interrupts.count:
        return INTERRUPTED, b""
    return code, output


def _pass_on(log: Path, told: int, note: Note) -> int:
    """Pass on whole lines from byte `told` on that are of trials or errors; the byte after them."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(told)
        text, newline, _ = file.read().rpartition(b"\n")
        for line in text.decode(errors="replace").splitlines():
            if line.startswith(PASSED):
                note(f"  {line}")
        return told + len(text) + len(newline)
    return told


def document(request: Request, found: Sequence[PartResult]) -> dict[str, Any]:
    """The whole reproduction as one document."""
    return {
        "format": "netdyno-reproduction/1",
        "quick": request.quick,
        "machine": machine(),
        "parts": [one.model_dump(mode="json") for one in found],
    }


def machine() -> dict[str, Any]:
    """Facts of this machine that figures depend on."""
    about = environment.collect()
    return {key: about[key] for key in ("cpu", "memory_bytes", "kernel", "distribution", "hypervisor")} | {
        "cores": len(os.sched_getaffinity(0)), "netdyno": __version__, "git": about["git"],
    }  # fmt: skip


def text(about: Mapping[str, Any]) -> str:
    """A document as it is written to a file."""
    return json.dumps(about, indent=1, ensure_ascii=False) + "\n"
