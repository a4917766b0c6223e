"""Kernel parameters of a machine that SSH reaches: a setting holds for as long as a session, and no longer.

The session is a shell script that writes the new values, waits, and puts the old ones back where nobody
else has changed them since. It hears a line each second, and puts them back after 10 s without one, or when
its input ends: also when we are killed, or the cable is cut. The journal has the old values for the case that
the script itself is killed: `netdyno restore` puts them back by SSH.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from netdyno.errors import Error
from netdyno.stats.observation import Setting, Value
from netdyno.system.journal import Journal
from netdyno.system.ssh import CONNECT, START, Session, SshHost
from netdyno.system.undo import TakenOverError, taken_over
from netdyno.tuning import access
from netdyno.tuning.access.base import at, value
from netdyno.tuning.host_state import HostState
from netdyno.tuning.model import Tunable
from netdyno.tuning.plan import Step, planned
from netdyno.tuning.registry import registry

HEARTBEAT, LEASE = 1.0, 10
"""Seconds between lines that the script hears, and without one after which it puts the values back."""
_LOOK = """
for one in {files}; do
    if [ -r /proc/sys/$one ]; then
        [ -w /proc/sys/$one ] && mode=rw || mode=ro
        printf '%s|%s|' $one $mode
        tr '\\n' ' ' </proc/sys/$one
        echo
    fi
done
"""
_HOLD = """
exec 9</proc/sys/net/core/somaxconn
flock -n 9 || {{ echo 'another study sets parameters there' >&2; exit 1; }}
trap '' HUP INT TERM PIPE
put() {{ printf '%s\\n' "$2" >"/proc/sys/$1"; }}
back() {{
{back}
}}
{put}
echo "set{made}"
while timeout -s KILL {lease} sh -c 'read -r _'; do :; done
back
echo "back{now}"
"""
_BACK = """
now=$(cat /proc/sys/{file}) || exit 0
if [ "$now" != {old} ]; then
    if [ -n {made} ] && [ "$now" != {made} ]; then printf 'taken|%s\\n' "$now"; exit 0; fi
    printf '%s\\n' {old} >/proc/sys/{file} && echo undone
fi
"""


@dataclass
class RemoteKernel:
    """The kernel of a machine that SSH reaches: parameters below /proc/sys."""

    host: str
    """Its name, for errors."""
    ssh: SshHost
    notes: Journal
    _texts: dict[str, str] = field(default_factory=dict)
    """Files as they were when they were read last."""

    def __post_init__(self) -> None:
        """Its errors are about parameters."""
        self.ssh = replace(self.ssh, code="ND-92-33")

    def states(self) -> dict[str, HostState]:
        """What it has of the registry, as it is now."""
        known = {
            name: one
            for name, one in registry().tunables.items()
            if one.access.kind == "sysctl" and "*" not in name
        }
        files = dict.fromkeys(_file(one) for one in known.values())
        modes: dict[str, str] = {}
        for line in self.ssh.run(_LOOK.format(files=" ".join(files))).splitlines():
            file, bar, rest = line.partition("|")
            if bar and file in files:
                modes[file], _, text = rest.partition("|")
                self._texts[file] = text.strip()
        return {name: self._state(name, one, modes.get(_file(one), "")) for name, one in known.items()}

    def _state(self, name: str, one: Tunable, mode: str) -> HostState:
        read = at(_values(self._texts.get(_file(one), "")), _key(one)) if mode else None
        state = "missing" if read is None else "there" if mode == "rw" else "read-only"
        return HostState(name, one, one.scope, state, read, one.low, one.high)  # type: ignore[arg-type]

    @property
    def devices(self) -> list[str]:
        """None that are set from here."""
        return []

    def sampler(self) -> None:
        """Its counters are not read."""

    @contextmanager
    def applied(self, setting: Setting, allow_global: bool) -> Iterator[None]:
        """A setting in force there, for as long as the block."""
        if not setting:
            yield
            return
        there = self.states()
        if missing := next((name for name in setting if name not in there), None):
            what = f"{missing} is nothing that is set over SSH"
            fix = "Only parameters below /proc/sys are: those of sysctl(8)"
            raise Error("ND-104-50", what, at=f"host {self.host}", fix=fix)

        def now(name: str) -> Value | None:
            return there[name].value if name in there else None

        made = planned(
            setting, {n: there[n] for n in setting}, now, self.host, registry(), allow_global=allow_global
        )
        with self._held([_written(step, self._texts) for step in made.steps]):
            yield

    @contextmanager
    def _held(self, files: Sequence[tuple[str, str, str]]) -> Iterator[None]:
        """Files with their old and new texts."""
        if not files:
            yield
            return
        about = {key: one for key, one in asdict(self.ssh).items() if one is not None}
        entries = [
            self.notes.write(
                "tunable_remote",
                ssh=about,
                file=file,
                old=old,
                words=f"{_name(file)} of the host {self.host}",
            )
            for file, old, _ in files
        ]
        session = Session(self.ssh, _script(files), self.notes)
        over = threading.Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT):
                session.tell()

        heart = threading.Thread(target=beat, name=f"setting-{self.host}", daemon=True)
        try:
            texts = session.line(CONNECT + START).split("|")
            if texts[0] != "set" or len(texts) != len(files) + 1:
                raise self.ssh.failed(f"its shell says {'|'.join(texts)[:80]!r}")
            heart.start()
            for (file, _, new), got in zip(files, texts[1:], strict=True):
                if got.split() != new.split():
                    what = f"{_name(file)} was set to {new} on the host {self.host}, and is {got}"
                    raise Error("ND-92-33", what, at=_name(file), fix="See `dmesg` there")
            self.notes.became(dict(zip(entries, texts[1:], strict=True)))
            yield
        finally:
            over.set()
            if heart.is_alive():
                heart.join()
            self._put_back(session, entries, [old for _, old, _ in files])

    def _put_back(self, session: Session, entries: Sequence[int], olds: Sequence[str]) -> None:
        """Its script puts the values back; where it does not say so, the journal does."""
        session.end_input()
        said = ""
        with suppress(Error):
            said = session.line(CONNECT)
        session.close()
        if said.split("|") == ["back", *olds]:
            self.notes.forget(*entries)
        else:
            self.notes.undo(*entries)


def undo(entry: Mapping[str, Any]) -> bool:
    """Put back a value that a session has left; whether there was anything to put back."""
    ssh, made = SshHost(**entry["ssh"]), str(entry.get("made") or "")
    file, old = str(entry["file"]), str(entry["old"])
    script = _BACK.format(file=shlex.quote(file), old=shlex.quote(old), made=shlex.quote(made))
    said = ssh.run(script).strip()
    if said.startswith("taken|"):
        raise TakenOverError(taken_over(str(entry["words"]), said.partition("|")[2], made, old))
    return said == "undone"


def _script(files: Sequence[tuple[str, str, str]]) -> str:
    put, back, made, now = [], [], "", ""
    for number, (file, old, new) in enumerate(files):
        put.append(f"put {file} {shlex.quote(new)} || {{ back; exit 1; }}")
        put.append(f"made{number}=$(cat /proc/sys/{file})")
        back.append(f'[ "$(cat /proc/sys/{file})" != "$made{number}" ] || put {file} {shlex.quote(old)}')
        made += f"|$made{number}"
        now += f"|$(cat /proc/sys/{file})"
    return _HOLD.format(put="\n".join(put), back="\n".join(reversed(back)), made=made, now=now, lease=LEASE)


def _written(step: Step, texts: Mapping[str, str]) -> tuple[str, str, str]:
    """The file of a step, its text and what becomes of it."""
    file = step.target.path.replace(".", "/")
    old = texts[file]
    values = {**_values(old), **step.values} if "" not in step.values else dict(step.values)
    return file, old, "\t".join(str(values[key]) for key in sorted(values))


def _file(one: Tunable) -> str:
    return one.access.path.replace(".", "/")


def _key(one: Tunable) -> str:
    return access.target(one.access, None)[1]


def _name(file: str) -> str:
    return file.replace("/", ".")


def _values(text: str) -> dict[str, Value]:
    """A file's numbers by their places, as `access.files` has them."""
    parts = text.split("\t")
    return {"": value(text)} if len(parts) == 1 else {str(i): value(part) for i, part in enumerate(parts)}
