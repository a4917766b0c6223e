"""Files that the messages of a ladder are read from: a capture, or what a run kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdyno.errors import Error
from netdyno.experiment.events import NAME as EVENTS
from netdyno.experiment.spec import table
from netdyno.sip.ladder import calls as by_call
from netdyno.sip.ladder.calls import OWN, Call, call_id
from netdyno.sip.ladder.capture import Message, Packets, read
from netdyno.store import Store
from netdyno.store.store import read_result


@dataclass
class Source:
    """Captures of one run, or one file."""

    path: Path
    files: Sequence[Path]
    tokens: Sequence[str] = ()
    """Those of the run: a Call-ID that looks like netdyno's and has none is of another run."""
    packets: int = 0
    messages: int = 0
    cut: int = 0
    """Packets of which the files have the beginning alone."""

    def calls(self, wanted: Sequence[str], most: int | None) -> list[Call]:
        """Its calls, by their first message."""
        found = by_call.calls(self._messages(), wanted, most)
        for call in found if self.cut else ():
            call.cut = True
        return found

    def _messages(self) -> Iterator[Message]:
        for file in self.files:
            packets = Packets()
            for message in read(file, packets):
                self.messages += 1
                if not is_of_another_run(call_id(message.data), self.tokens):
                    yield message
            self.packets += packets.seen
            self.cut += packets.cut


def is_of_another_run(name: str, tokens: Sequence[str]) -> bool:
    """Whether a Call-ID looks like netdyno's, and has none of the tokens of this run."""
    return bool(tokens) and name.endswith(OWN) and not any(token in name for token in tokens)


def find(name: str) -> Source:
    """A capture by its path, or a run by folder, id or `latest`."""
    path = Path(name)
    if path.is_file() and path.name != "result.json":
        return Source(path, [path])
    folder = folder_of(name)
    files = captures(folder)
    if not files:
        what, fix = "this run kept no packets", "Run it again with --capture"
        raise Error("ND-104-71", what, at=str(folder), fix=fix)
    return Source(folder, files, _tokens(folder))


def folder_of(name: str) -> Path:
    """The folder of a run, by folder, id or `latest`."""
    path = Path(name)
    folder = path.parent if path.name == "result.json" else path
    if folder.is_dir() and (folder / "result.json").is_file():
        return folder
    if path.suffix in (".pcap", ".pcapng", ".cap"):
        raise Error("ND-104-20", "there is no such file", at=name, fix="Give the path of a capture")
    with Store() as store:
        return store.folder(store.resolve(name))


def captures(folder: Path) -> list[Path]:
    """The captures of a run's trials, in their order."""
    return sorted(folder.glob("capture*.pcapng"), key=lambda one: (len(one.name), one.name))


def tokens_so_far(folder: Path) -> list[str]:
    """What the Call-IDs of a run under way have in them; nothing where anybody may call it."""
    try:
        # the last may be under way
        *lines, _last = (folder / EVENTS).read_text().split("\n")
    except FileNotFoundError:
        # it is over: its result has them
        return _tokens(folder) if (folder / "result.json").is_file() else []
    begun = [table(json.loads(line).get("plan")) for line in lines]
    groups = [group for plan in begun for group in plan.get("groups", ())]
    # of a fleet, those of all hosts
    tokens = [token for group in groups for token in group.get("tokens", [group.get("token")])]
    return [] if _listens(folder) or not all(tokens) else tokens


def _listens(folder: Path) -> bool:
    profile = json.loads((folder / "profile.json").read_text())
    variants = [profile] if isinstance(profile.get("groups"), list) else profile.values()
    groups = [group for variant in variants for group in variant["groups"]]
    return any("port" in table(table(group.get("model")).get("sip")) for group in groups)


def _tokens(folder: Path) -> list[str]:
    """What the Call-IDs of the run have in them."""
    trials = [trial for leg in read_result(folder / "result.json").legs for trial in leg.repetitions]
    groups = [group for trial in trials for group in trial.groups]
    # user agents that ask for nothing are called by others
    asks = any(group.total.messages_sent for group in groups)
    return [token for group in groups for token in group.tokens] if asks else []
