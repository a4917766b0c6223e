"""Fixtures of the end-to-end tests, and a limit of time for each of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from lab import NETDYNOD, Lab, Wire, wire

LIMIT = 90
"""Seconds that a test may take, unless `@pytest.mark.limit(SECONDS)` says otherwise."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): how long the test may take")


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    if not Path(NETDYNOD).is_file():
        pytest.fail(f"{NETDYNOD} is not there: build it with `./do setup`")


@pytest.fixture(autouse=True)
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker("limit")
    seconds = int(marker.args[0]) if marker else LIMIT

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A place of the test's own; what is left at its end is ended and removed."""
    one = Lab()
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def cable() -> Iterator[Wire]:
    """Two namespaces with a cable between them."""
    with wire() as one:
        yield one
