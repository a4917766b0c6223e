"""Two state folders and one kernel: what one netdyno has set, another sees, wherever either keeps its journal."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno import paths
from netdyno.errors import Error
from netdyno.system import journal, namespace, proc
from netdyno.tuning.apply import alone, apply
from netdyno.tuning.plan import plan
from netdyno.tuning.verbs.status import AppliedValue, applied_values

from .. import spaces
from ..command import start
from ..conftest import root
from ..spaces import somaxconn, wait_for

pytestmark = root
NAME = "net.core.somaxconn"


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Another state folder, with what a shell would read otherwise."""
    return str(tmp_path / "other folder")


@pytest.fixture
def holder(space: str, other: str) -> Iterator[subprocess.Popen[str]]:
    """A command with that state folder that has set a value."""
    child = start("tune", "apply", "--set", f"{NAME}=8192", "--where", space, NETDYNO_STATE=other)
    try:
        wait_for(space, "8192")
        yield child
    finally:
        child.kill()
        child.communicate()


def seen(space: str) -> list[AppliedValue]:
    return [one for one in applied_values() if one.where == space]


def test_what_a_living_one_has_set_is_not_set_again(
    space: str, other: str, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(Error, match="ND-92-40") as caught:
        apply(plan({NAME: 1000}, space))
    assert f"netdyno process {holder.pid}, whose state folder is {other}" in caught.value.what
    with apply(plan({"net.ipv4.tcp_fin_timeout": 15}, space)):  # what it does not hold is free
        pass
    (one,) = seen(space)
    assert (one.parameter, one.before, one.set, one.process, one.state_folder) == (
        NAME, 4096, 8192, holder.pid, other,
    )  # fmt: skip
    holder.send_signal(signal.SIGINT)
    assert holder.wait(120) == 0
    assert somaxconn(space) == "4096"
    assert seen(space) == []
    with apply(plan({NAME: 1000}, space)):
        assert somaxconn(space) == "1000"
    assert somaxconn(space) == "4096"


def test_what_a_killed_one_left_is_put_back_first(space: str, other: str, tmp_path: Path) -> None:
    """By the command that is told, in its state folder: nothing here does."""
    script = f"""
import os, signal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({{{NAME!r}: 8192}}, {space!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = os.environ | {"NETDYNO_STATE": other}
    subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert somaxconn(space) == "8192"
    # a restore here has nothing to do with it
    assert journal.restore().undone == []
    with pytest.raises(Error, match=r"ND-92-40.*a killed netdyno") as caught:
        apply(plan({NAME: 1000}, space))
    assert somaxconn(space) == "8192"
    (one,) = seen(space)
    assert other in one.state and one.process is None
    told = f"NETDYNO_STATE={shlex.quote(other)} netdyno restore"
    assert told in caught.value.fix and told in one.state
    command = told.replace("netdyno restore", f"{shlex.quote(sys.executable)} -m netdyno restore")
    assert subprocess.run(command, shell=True, check=False, capture_output=True).returncode == 0
    assert somaxconn(space) == "4096"
    with apply(plan({NAME: 1000}, space)):
        assert somaxconn(space) == "1000"
    assert somaxconn(space) == "4096"


def test_what_went_with_a_namespace_holds_nothing(other: str) -> None:
    """One of the same name has values of its own."""
    name = f"ndt-folders-{os.getpid()}"
    script = f"""
import os, signal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({{{NAME!r}: 8192}}, {name!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    with spaces.made(name):
        environment = os.environ | {"NETDYNO_STATE": other}
        subprocess.run([sys.executable, "-c", script], env=environment, check=False)
        assert somaxconn(name) == "8192"
    with spaces.made(name), apply(plan({NAME: 1000}, name)):
        assert somaxconn(name) == "1000"


def test_one_at_a_time_looks_and_writes(space: str, other: str) -> None:
    """The lock is the machine's: whoever waits for it has set nothing."""
    with alone():
        child = start("tune", "apply", "--set", f"{NAME}=8192", "--where", space, "--for", "1s",
                      NETDYNO_STATE=other)  # fmt: skip
        lock = (paths.runtime() / "tuning.lock").stat().st_ino
        until = time.monotonic() + 120
        while f":{lock} " not in _waiting():
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.05)
        assert somaxconn(space) == "4096"
    wait_for(space, "8192")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, (out, err)
    assert somaxconn(space) == "4096"


def _waiting() -> str:
    """Lines of those who wait for a lock."""
    return "\n".join(line for line in Path("/proc/locks").read_text().splitlines() if "->" in line)


def test_links_to_journals_that_are_gone_are_cleared(space: str, other: str, tmp_path: Path) -> None:
    links = paths.runtime() / "journals"
    here = journal.Journal(Path(other) / "journal")
    number = here.write(
        "tunable", words="x", where=space, id=namespace.cookie(space), saved={}, target=["", "", ""]
    )
    assert here.path in list(journal.elsewhere(tmp_path))
    mine = [one for one in links.iterdir() if one.readlink() == here.path]
    assert len(mine) == 1
    here.forget(number)
    assert not mine[0].is_symlink()
    # of a process that was killed, whose state folder somebody removed
    dead = links / "left"
    dead.symlink_to(tmp_path / f"4194304-{proc.start_time(1)}.jsonl")
    list(journal.elsewhere(tmp_path))
    assert not dead.is_symlink()
