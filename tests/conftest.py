"""Fixtures of the end-to-end tests, and a limit of time for each of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from lab import NETDYNOD, Lab, Wire, wire

LIMIT = 240
"""Seconds that a test may take, unless `@pytest.mark.limit(SECONDS)` says otherwise."""


pytest_plugins = ["browser", "inconclusive", "sampled", "nat_hosts"]

TOGETHER = ("test_failing_servers.py", "test_failing_servers_devices.py")
"""Files whose tests look at one and the same run of many groups."""
POLLING = (
    "test_dpdk.py",
    "test_failing_servers_dpdk.py",
    "test_frames.py",
    "test_graph.py",
)
"""Files whose runs take a core each, whatever their load."""
NATS = (
    "test_nat_run.py",
    "test_nat_vlan.py",
    "test_nat_keep.py",
    "test_nat_pair.py",
    "test_nat_sites.py",
    "test_web_nat.py",
)
"""Files of NATs that stand all the time, whose workers look for packets all the time."""
TRANSFERS = ("test_tuning_search.py", "test_tuning.py", "test_tune_watch_path.py", "test_bottlenecks.py")
"""Files that look for what limits a transfer, which beside another one is that."""
SCOPES = {"polling": (*POLLING, *TOGETHER), "nats": NATS, "transfers": TRANSFERS}
"""Files whose tests run one after the other: servers of many groups lose datagrams where polling takes their CPU time."""
FIRST = ("test_vm.py", *POLLING, *NATS, *TOGETHER, *TRANSFERS, "test_package.py")
"""Files that take longest begin first, so that nothing of them is left to wait for alone at the end."""


# Where these are ignored, as under nohup and in the background of a shell, commands that the tests start would ignore them
# too. Those that tests are told of are taken and dropped, which a started command does not inherit.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # before tests are drawn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker("drawn")
    items.sort(key=lambda item: not item.path.name.endswith(FIRST))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): how long the test may take")
    config.addinivalue_line("markers", "alone: depends on the machine's speed, so nothing may run beside it")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run beside each other (`-n`): each by itself, but for those of one scope."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            for scope, files in SCOPES.items():
                if file.endswith(files):
                    return scope
            return nodeid

    return Scheduling(config, log)


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
