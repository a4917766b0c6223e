"""What a screening or a search is about, where its trials are kept, and what came of it: a document."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netdyno import __version__, files, reading
from netdyno.errors import Error
from netdyno.experiment.record import folder
from netdyno.experiment.spec import run_id

Kind = str
"""Systems name theirs in `systems.py`, with what makes their pages."""
FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,79}")


@dataclass(frozen=True)
class Study:
    """A screening or a search by name."""

    kind: Kind
    name: str
    bench: str
    """In words."""
    plan: Mapping[str, Any]
    """Which trials there are: whoever asks for the same goes on with them."""

    @classmethod
    def of(cls, kind: Kind, bench: str, plan: Mapping[str, Any], name: str | None = None) -> Study:
        """A study; without a name the same plan has the same one, so that it is gone on with."""
        whole = {"kind": kind, "bench": bench, **plan}
        if name is None:
            digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:8]
            word = re.sub(r"[^a-z0-9]+", "-", bench.lower()).strip("-")[:32]
            name = f"{kind}-{word}-{digest}"
        elif not _NAME.fullmatch(name):
            fix = "Use letters, digits, dots, dashes and underscores"
            raise Error("ND-104-04", f"{name!r} is no name for a file", at="--name", fix=fix)
        return cls(kind, name, bench, whole)

    @property
    def record(self) -> Path:
        """Its trials."""
        return folder() / f"{self.name}.jsonl"

    @property
    def document(self) -> Path:
        """What came of it."""
        return folder() / f"{self.name}.json"

    @property
    def run(self) -> str:
        """Its run: that of before, if it was finished then, as whoever goes on with it makes no other."""
        try:
            return str(reading.record(self.document)["run"])
        except (OSError, ValueError, LookupError, TypeError, Error):
            return run_id(self.name)

    def restart(self) -> None:
        """Put trials that are there aside."""
        if self.record.exists():
            with files.os_errors(self.record):
                self.record.replace(self.record.with_suffix(".old.jsonl"))

    def finish(
        self, run: str, result: Mapping[str, Any], trials: list[dict[str, Any]], tunables: Any
    ) -> dict[str, Any]:
        """Write what came of it, with all that its page shows."""
        made = {
            "format": FORMAT,
            "netdyno": __version__,
            "kind": self.kind,
            "name": self.name,
            "run": run,
            "bench": self.bench,
            "machine": machine(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "plan": dict(self.plan),
            "tunables": tunables,
            "result": dict(result),
            "trials": trials,
        }
        files.make_folder(self.document.parent)
        files.write(self.document, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        return made


def machine() -> dict[str, Any]:
    """The machine that measures: kernel, processor and number of cores."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return {
        "kernel": platform.release(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count() or 1,
    }


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""


def read(name: str, kind: Kind | None = None) -> dict[str, Any]:
    """The document of a study, by name or file."""
    path = Path(name) if name.endswith(".json") else folder() / f"{name}.json"
    try:
        if not path.exists():
            raise FileNotFoundError(path)
        made = reading.record(path)
    except FileNotFoundError as e:
        there = sorted(p.stem for p in folder().glob("*.json"))[-5:]
        fix = f"There are: {', '.join(there)}" if there else "None was finished yet"
        raise Error("ND-104-53", f"there is no study {name!r}", at=str(path), fix=fix) from e
    except (OSError, ValueError) as e:
        raise Error("ND-104-53", f"it cannot be read: {e}", at=str(path)) from e
    if not isinstance(made, dict) or made.get("format") != FORMAT:
        raise Error("ND-104-53", "it is not the document of a study", at=str(path))
    if kind is not None and made["kind"] != kind:
        what = f"it is a study of the kind {made['kind']}, not {kind}"
        raise Error("ND-104-53", what, at=str(path), fix=f"Name a study of the kind {kind}")
    return made
