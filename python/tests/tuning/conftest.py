from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from .. import spaces
from ..command import start


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the disk after a power cut is not what these tests are about."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def space() -> Iterator[str]:
    with spaces.made(f"ndt-watch-{os.getpid()}") as name:
        subprocess.run(f"ip -n {name} link set lo up".split(), check=True)
        yield name


@pytest.fixture
def served(space: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def begin(script: str, *words: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", space, sys.executable, "-c", script, *words]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert children[-1].stdout and children[-1].stdout.readline() == "ready\n"
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def watched(space: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        children.append(start("tune", "watch", "--where", space, "--json", *options))
        assert children[-1].stderr and "watching" in children[-1].stderr.readline()
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()
