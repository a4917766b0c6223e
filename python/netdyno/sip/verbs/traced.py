"""`--trace` of loads keeps the messages of a few calls, and `--ladder` draws them as they come."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from netdyno.cli import console
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment.runner import save
from netdyno.experiment.view import NullView, Plan
from netdyno.sip.ladder import follow, trace

MOST = 20_000
"""Messages that are read for a ladder while a run is under way: reading takes the generator's CPU."""


def readable(document: Mapping[str, Any], given: Mapping[str, Any], said: str) -> None:
    """Raise Error where no message can be taken from packets. `said`: the option that wants them."""
    if given["fleet"]:
        what = "messages are taken from a capture, which is a file of one host"
        raise Error("ND-104-07", what, at=f"{said} and --fleet", fix="Leave one of them out")
    if urlsplit(document["targets"]["server"]).scheme not in ("sip", "sip+tcp"):
        what = "messages over TLS and WebSocket cannot be read from packets"
        raise Error("ND-104-07", what, at=said, fix="Leave it out, or use UDP or TCP")


def capture(document: Mapping[str, Any], given: Mapping[str, Any], said: str = "--trace") -> dict[str, str]:
    """The capture that messages are taken from."""
    if given["capture"]:
        fix = "Leave one of them out: `netdyno sip ladder` reads what --capture kept, too"
        raise Error("ND-104-07", "--capture keeps all packets", at=said, fix=fix)
    readable(document, given, said)
    url = urlsplit(document["targets"]["server"])
    ports = [url.port or 5060]
    for group in document["groups"]:
        ports += [
            int(one["address"].rpartition(":")[2]) for one in group.get("failover", {}).get("servers", ())
        ]
        ports += [port] if (port := group["model"]["sip"].get("port")) else []
    return {"filter": trace.capture_filter(ports), "limit": trace.LIMIT}


def keep(result: Result, folder: Path, most: int, listens: bool, said: str = "--trace") -> None:
    """Reduce what was captured to what is to be kept, and put ladders into the report. Raises Error.

    `said`: what the user knows it as.
    """
    captures = [one.capture for leg in result.legs for one in leg.repetitions if one.capture]
    cut = any(one.state == "full" or one.dropped for one in captures)
    tokens = [
        token
        for leg in result.legs
        for one in leg.repetitions
        for group in one.groups
        for token in group.tokens
    ]
    kept = trace.reduce(folder, most, cut, listens, tokens)
    # what is kept of it holds none
    for one in captures:
        one.secrets = []
    if kept is None or not kept.calls:
        console.note(f"{said}: there is no message to keep")
        return
    of = f"{kept.calls:,} calls and registrations"
    told = f"{said}: the first {kept.first:,} of {of}, and {kept.failed:,} that failed"
    if kept.cut:
        told += f" (the capture of {trace.LIMIT} was full or lost packets: later calls are not in it)"
    save(result, folder)
    console.note(f"{told}: in the report, and `netdyno sip ladder {folder}`")


class LiveLadder(NullView):
    """Draws the first call and the first registration of a run, a line for each message as it comes."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._over = Event()
        self._thread: Thread | None = None

    def start(self, plan: Plan) -> None:
        """The first trial begins."""
        if self._thread is None:
            self._thread = Thread(target=self._draw, args=(self._runs / plan["id"],), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """The run is over: what was captured is drawn."""
        self._over.set()
        if self._thread:
            self._thread.join()

    def _draw(self, folder: Path) -> None:
        try:
            if not follow.run(folder, self._over.is_set, 1, MOST, console.live):
                console.note(f"--ladder: drawn from the first {MOST:,} messages; the report has the rest")
        except (Error, OSError) as e:
            console.note(f"--ladder: {e}")
