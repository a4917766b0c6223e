"""The dashboard while many look on: how late a point is on the screen, what viewers cost, and those who freeze."""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import Page, ask
from lab import Lab, until

from netdyno.core.result import Result
from netdyno.experiment.events import EventFile
from netdyno.experiment.view import NullView
from netdyno.store import Store
from netdyno.store.store import NAME

GROUPS = [f"group-{number}" for number in range(25)]
SERIES = 200
VIEWERS = 50
HALF_OPEN = 1000
OPEN_FILES = 300
"""More than the connections that the server lets wait, and what else it has open."""

PAINTED = """(() => {
  window.painted = [];
  let waiting = false;
  const drawn = new MessageChannel();
  drawn.port1.onmessage = () => {
    waiting = false;
    const shown = document.querySelector('.now .line')?.innerText ?? '';
    window.painted.push([performance.timeOrigin + performance.now(), shown]);
  };
  const stroke = CanvasRenderingContext2D.prototype.stroke;
  CanvasRenderingContext2D.prototype.stroke = function (...path) {
    stroke.apply(this, path);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => drawn.port2.postMessage(0));
  };
})()"""
"""When the browser has drawn a frame with new lines, and the time of the run that stands beside them."""


class MadeUpRun:
    """A run of this process, whose points come when the test says so."""

    def __init__(self, lab: Lab) -> None:
        self.name = "20261130-100000-viewers-000000"
        self.folder = lab.runs / self.name
        self.folder.mkdir(parents=True)
        self._at = 0
        plan: Any = {
            "title": "viewers", "leg": "viewers", "trial": 1, "trials": 1, "duration": 600.0, "daemon": "",
            "phases": {"warmup": 0.0, "measure": 599.0, "drain": 1.0},
            "groups": [{"name": one, "protocol": "http", "devices": 2, "target": "http://192.0.2.1"} for one in GROUPS],
        }  # fmt: skip
        with Store(lab.state / NAME) as store:
            begun = {"id": self.name, "kind": "run", "name": "viewers", "started": "2026-11-30T10:00:00Z"}
            store.begin(Result.model_validate(begun), self.folder)
        (self.folder / "samples.jsonl").write_text("")
        EventFile(self.folder / "events.jsonl", NullView()).start(plan)
        for _ in range(3):
            self.point()

    def point(self) -> tuple[float, int]:
        """One more point of all groups; when it was written, and its time in the run."""
        self._at += 1
        delay = {
            "count": 50,
            "p50": 1e6,
            "p90": 2e6,
            "p99": 3e6,
            "p999": 4e6,
            "max": 5e6,
            "mean": 1e6,
            "min": 1e5,
        }
        sent = {
            "messages_intended": 50,
            "messages_sent": 50,
            "messages_delivered": 49,
            "failures": {"timeout": 1},
        }
        groups = {one: {"counts": sent, "delays": {"application": delay}} for one in GROUPS}
        point = {"t": self._at, "dt": 1.0, "phase": "measure", "elapsed": self._at, "left": 600 - self._at}
        line = json.dumps(point | {"groups": groups}) + "\n"
        with (self.folder / "samples.jsonl").open("a") as file:
            file.write(line)
        return time.time(), self._at


class Door:
    """A dashboard, and what its process costs."""

    def __init__(self, lab: Lab) -> None:
        child = lab.start("web", "--listen", "127.0.0.1:0")
        assert child.stdout is not None
        self.pid = child.pid
        self.address, _, self.token = child.stdout.readline().split()[1].partition("#token=")
        where = urlsplit(self.address)
        self.place = (str(where.hostname), int(where.port or 0))

    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> int:
        """Files and connections that it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def watch(self, run: str, buffer: int = 0) -> socket.socket:
        """A stream of a run; with a small buffer where nothing is to be read."""
        one = socket.socket()
        if buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        one.settimeout(60)
        one.connect(self.place)
        host = f"{self.place[0]}:{self.place[1]}"
        head = (
            f"GET /api/runs/{run}/live HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        )
        one.sendall(head.encode())
        return one


class Viewer(threading.Thread):
    """Somebody who reads a stream."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(daemon=True)
        self.stream, self.got = stream, 0
        self.start()

    def run(self) -> None:
        rest = b""
        while True:
            try:
                read = self.stream.recv(1 << 20)
            except OSError:
                return
            if not read:
                return
            *whole, rest = (rest + read).split(b"\n")
            self.got += sum(line.startswith(b"event: ") for line in whole)


@pytest.fixture
def run(lab: Lab) -> MadeUpRun:
    return MadeUpRun(lab)


@pytest.fixture
def door(lab: Lab, run: MadeUpRun) -> Iterator[Door]:
    yield Door(lab)


@pytest.mark.browser
@pytest.mark.limit(240)
def test_each_point_of_two_hundred_series_is_drawn(run: MadeUpRun, door: Door, page: Page) -> None:
    page.driver.get(f"{door.address}#token={door.token}")
    page.wait("!!document.querySelector('.run .of')")
    page.js(f"void (location.hash = '#/run/{run.name}')")
    page.wait("document.querySelectorAll('#live .chart').length > 3", "there are no charts")
    page.js(PAINTED)
    delays = []
    for _ in range(30):
        written, at = run.point()
        drawn: list[float] = []

        def shown(at: int = at, drawn: list[float] = drawn) -> bool:
            found = page.js("window.painted")
            drawn[:] = [when for when, text in found if re.search(rf"^{at}\.0+\s", text, re.MULTILINE)]
            return bool(drawn)

        until(shown, 60, f"the point at {at} s is not drawn")
        delays.append(drawn[0] / 1e3 - written)
        time.sleep(0.15)
    # the charts have as many lines
    streams = door.watch(run.name)
    text = b""
    while b"\n\n" not in text:
        text += streams.recv(1 << 20)
    streams.close()
    whole = json.loads(text.partition(b"data: ")[2].partition(b"\n")[0])
    lines = sum(len(view["lines"]) for chart in whole["again"]["charts"] for view in chart["views"])
    assert lines >= SERIES
    median, most = statistics.median(delays), max(delays)
    print(f"from the event to the pixel, {lines} series, {len(delays)} points: "
          f"median {median * 1e3:.0f} ms, at most {most * 1e3:.0f} ms")  # fmt: skip


@pytest.mark.limit(240)
def test_fifty_viewers_get_each_point_while_others_are_frozen(run: MadeUpRun, door: Door) -> None:
    frozen = [door.watch(run.name, buffer=4096) for _ in range(3)]
    viewers = [Viewer(door.watch(run.name)) for _ in range(VIEWERS)]
    until(lambda: all(one.got for one in viewers), 60, "a viewer sees nothing")
    for number in range(18):
        # what is only done once is not what viewers cost
        if number == 3:
            began, before = time.monotonic(), door.cpu()
        next_one = time.monotonic() + 1
        run.point()
        # each has something new before the next comes, though some take nothing
        until(lambda number=number: all(one.got >= number + 2 for one in viewers), 60, "a viewer waits")
        time.sleep(max(0.0, next_one - time.monotonic()))
    took = door.cpu() - before
    share = took / (time.monotonic() - began)
    print(f"{VIEWERS} viewers of {len(GROUPS)} groups, a point a second: {share:.1%} of a core")
    for one in (*frozen, *(viewer.stream for viewer in viewers)):
        one.close()


HALF = (
    b"GET /api/about HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
)
PIPELINED = b"GET /assets/texts.json HTTP/1.1\r\nHost: %s\r\n\r\n" * 60


@pytest.mark.limit(240)
def test_who_reads_no_answer_is_hung_up_on(run: MadeUpRun, door: Door) -> None:
    """Answers of which each is larger than what the kernel takes for one that does not read."""
    before, greedy = door.files(), []
    host = f"{door.place[0]}:{door.place[1]}"
    for _ in range(100):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(door.place)
        one.sendall(PIPELINED % ((host.encode(),) * 60))
        greedy.append(one)
    assert ask(f"{door.address}api/about", door.token)["role"] == "operator"
    until(lambda: door.files() < before + 20, 120, "it holds them")
    for one in greedy:
        one.close()


@pytest.mark.limit(240)
def test_it_answers_beside_a_thousand_half_open_connections(run: MadeUpRun, door: Door) -> None:
    half = []
    for number in range(HALF_OPEN):
        one = socket.create_connection(door.place, timeout=60)
        # some say nothing, others begin a request and never end it, or its body
        if number % 3:
            one.sendall(HALF[number % 3 - 1])
        half.append(one)
        if number % 100 == 99:
            assert ask(f"{door.address}api/about", door.token)["role"] == "operator"
            assert door.files() < OPEN_FILES
    viewer = Viewer(door.watch(run.name))
    until(lambda: viewer.got > 0, 60, "a viewer sees nothing")
    seen = viewer.got
    run.point()
    until(lambda: viewer.got > seen, 60, "a viewer waits")
    assert door.files() < OPEN_FILES
    for one in (*half, viewer.stream):
        one.close()
