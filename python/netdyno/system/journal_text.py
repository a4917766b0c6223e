"""What a journal says, and which of its lines are damaged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno.system.proc import alive, boot_id, pid_namespace, start_time

_BEGINNINGS = (b'{"seq": ', b'{"undone": ', b'{"became": ')
"""What a line begins with. A writer that was killed, or found the disk full, leaves the beginning of one: its
change had not begun."""


@dataclass(frozen=True)
class Text:
    """A journal that was read."""

    head: dict[str, Any] | None
    """Whose it is: `owner`, `start` and `boot`; None where no line says so."""
    left: list[dict[str, Any]]
    """Changes that are not undone, with what they came to."""
    damaged: list[int]
    """Numbers of the lines that cannot be read, from 1."""
    empty: bool = False

    def lives(self, path: Path) -> bool:
        """Whether its owner does, by its name where it does not say."""
        if self.head is not None:
            return self.same_boot and start_time(int(self.head["owner"])) == self.head["start"]
        pid, born, *_ = [*path.stem.split("-"), ""]
        return pid.isdecimal() and born.isdecimal() and alive(int(pid), int(born))

    @property
    def elsewhere(self) -> bool:
        """Whether its owner's number is of another PID namespace, and says nothing here."""
        return self.same_boot and (self.head or {}).get("pids", pid_namespace()) != pid_namespace()

    @property
    def same_boot(self) -> bool:
        """Whether it was written since the machine started."""
        return self.head is not None and self.head["boot"] == boot_id()

    def fault(self) -> str:
        """What is wrong with it, if anything."""
        if self.empty:
            return "it is empty: which changes were to be undone is not known"
        wrong = []
        if self.damaged:
            some = ", ".join(map(str, self.damaged[:5])) + (", …" if len(self.damaged) > 5 else "")
            wrong.append(f"line{'s' * (len(self.damaged) > 1)} {some} cannot be read")
        if self.head is None:
            wrong.append("no line says which process and boot it is of")
        return ", and ".join(wrong)


def read(content: bytes) -> Text:
    """Read all lines of a journal."""
    head: dict[str, Any] | None = None
    changes: dict[int, dict[str, Any]] = {}
    done = set[int]()
    made: dict[int, Any] = {}
    damaged = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if {"owner", "start", "boot"} <= entry.keys():
                head = head or entry | {"owner": int(entry["owner"])}
            elif "became" in entry:
                made |= {int(key): value for key, value in entry["became"].items()}
            elif "undone" in entry:
                undone = entry["undone"]
                done |= set(map(int, undone if isinstance(undone, list) else [undone]))
            else:
                str(entry["kind"])
                changes[int(entry["seq"])] = entry
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError):
            # each line is written with an end of line before and behind it: behind one cut short is none
            cut_short = number == len(lines) or bool(lines[number])
            if not (cut_short and any(line.startswith(one) or one.startswith(line) for one in _BEGINNINGS)):
                damaged.append(number)
    left = [entry for number, entry in changes.items() if number not in done]
    left = [e | {"made": made[e["seq"]]} if e["seq"] in made else e for e in left]
    return Text(head, left, damaged, not content.strip())
