"""Shared fixtures: a state folder of the test's own, and the stand-in daemon as a program."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from netdyno.core.daemon import Daemon

from .command import PROFILE

pytest_plugins = ["inconclusive", "sampled"]

# a busy machine is no failure
settings.register_profile("netdyno", deadline=None)
settings.load_profile("netdyno")


TOGETHER = {
    "test_browser.py": "browser",
    "test_explorer.py": "browser",
    "test_page.py": "browser",
    "test_live.py": "browser",
    "test_tunables.py": "kernel",
    "test_the_buffer_of_a_running_reader_can_be_set": "kernel",
    "test_a_sleeping_reader_is_fixed": "kernel",
    "test_a_backlog_that_overflows_is_fixed": "kernel",
    "test_thresholds_of_neighbours_are_raised": "kernel",
    "test_too_many_orphans_raise_a_limit": "kernel",
}
"""Files and tests that share what there is one of, like the machine's parameters (a watch leaves all alone once
somebody else sets one), or what takes long to make."""
FIRST = (
    "tuning/test_apply.py::test_killed_at_every_point",
    "test_trust.py::test_a_full_disk",
    "test_trust.py::test_killed_at_every_step",
    "test_search.py::test_it_gets_from_the_defaults",
    "test_recommend.py::test_without_an_own_one",
    "test_stats.py::test_false_positives",
    "test_browser.py",
    "test_tunables.py",
    "test_cli_words.py::test_shells_complete",
    "test_exits.py::test_standard_output_that_takes_nothing",
    "test_reading.py::test_a_document_that_multiplies",
)
"""What takes longest begins first, so that nothing of it is left to wait for alone at the end; quick tests leave
it out."""


# Where these are ignored, as under nohup and in the background of a shell, commands that the tests start would ignore them
# too. Those that tests are told of are taken and dropped, which a started command does not inherit.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def is_long(item: pytest.Item) -> bool:
    """Whether it starts programs, changes the machine or simulates for seconds; logic alone takes milliseconds."""
    if any(item.get_closest_marker(mark) for mark in ("slow", "root", "browser")):
        return True
    return isinstance(item, pytest.Function) and not {"fake", "daemon"}.isdisjoint(item.fixturenames)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(one in item.nodeid for one in FIRST):
            item.add_marker("slow")
        if is_long(item):
            item.add_marker("drawn")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run beside each other (`-n`): each by itself, but what is shared is one after the other's."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path, _, test = nodeid.partition("::")
            return TOGETHER.get(path.rpartition("/")[2]) or TOGETHER.get(test.partition("[")[0], nodeid)

    return Scheduling(config, log)


root = pytest.mark.root


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journal and store of this test only."""
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    return tmp_path / "state"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in daemon, found as the daemon's program."""
    path = tmp_path / "netdynod"
    script = Path(__file__).with_name("fake_daemon.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("NETDYNO_DAEMON", str(path))
    monkeypatch.setenv("FAKE_SPEED", "20")
    return path


NAMED = os.environ.get("NETDYNO_DAEMON")
"""The daemon that is tested, before a test names another."""


def _real() -> Path | None:
    if NAMED:
        return Path(NAMED)
    top = Path(__file__).resolve().parents[2] / "target"
    return next((p for p in (top / "release/netdynod", top / "debug/netdynod") if p.is_file()), None)


@pytest.fixture(params=["fake", "real"])
def daemon(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Daemon]:
    """A running daemon: the stand-in, and the real one where it is built."""
    if request.param == "real":
        program = _real()
        if program is None:
            pytest.skip("netdynod is not built")
        monkeypatch.setenv("NETDYNO_DAEMON", str(program))
    else:
        request.getfixturevalue("fake")
    with Daemon(tmp_path / "nd-core.sock", tmp_path / "log.jsonl") as one:
        yield one


@pytest.fixture
def profile(tmp_path: Path, fake: Path) -> Path:
    """A small profile, with the stand-in daemon to run it."""
    path = tmp_path / "p.json"
    path.write_text(json.dumps(PROFILE))
    return path
