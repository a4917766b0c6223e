"""What somebody else has changed since we did is theirs: it is left and named, and only forced put back."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system import journal, proc, sysctl
from netdyno.system.journal import Journal
from netdyno.tuning import access
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan

from .. import spaces
from ..command import start
from ..conftest import root
from ..spaces import somaxconn, wait_for

pytestmark = root


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(f"ndt-taken-{os.getpid()}") as name:
        yield name


OTHERS = {
    "net.core.somaxconn": 777,
    "net.ipv4.tcp_rmem.default": 262144,
    "net.ipv4.tcp_rmem.max": 67108864,
    "dev.v0.txqueuelen": 7,
    "dev.v0.rps_cpus": "3",
    "dev.v0.tso": "off",
}


def killed(script: str) -> None:
    """Run this until it has killed itself."""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def forced() -> str:
    """Put back what can be, whoever changed it; what is said of that."""
    child = start("tune", "restore", "--force")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return out


def meddle(space: str) -> None:
    """Change some of what was set, as a human would."""
    sysctl.write(space, "net.core.somaxconn", "888")
    low, _, most = str(sysctl.read(space, "net.ipv4.tcp_rmem")).split()
    sysctl.write(space, "net.ipv4.tcp_rmem", f"{low} 300000 {most}")
    subprocess.run(f"ip -n {space} link set v0 txqueuelen 99".split(), check=True)
    subprocess.run(f"ip netns exec {space} ethtool -K v0 tso on".split(), check=True)

    def queue() -> None:
        Path("/sys/class/net/v0/queues/rx-1/rps_cpus").write_text("1")

    access.within(space, queue)


def test_what_somebody_else_changed_is_left_and_named(space: str, state: Path) -> None:
    """Each number of a file and each queue by itself; forced, all of it is put back."""
    before = spaces.state(space)
    script = f"""
import os, signal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({OTHERS!r}, {space!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed(script)
    meddle(space)
    # every start, and restoring itself, as often as one likes
    for _ in range(2):
        report = journal.restore()
        assert not report.failed
    said = "\n".join(report.left)
    for words in (
        f"net.core.somaxconn in {space} is 888, and not 777 as we", "it was 4096 before us",
        f"net.ipv4.tcp_rmem.default in {space} is 300000, and not 262144 as we",
        f"dev.v0.txqueuelen in {space} is 99, and not 7 as we",
        f"dev.v0.rps_cpus in {space} is 1, and not 3 as we",
    ):  # fmt: skip
        assert words in said
    # what is as it was before is nobody's
    assert not any(name in said for name in ("tcp_rmem.max", "dev.v0.tso"))
    now = spaces.state(space)
    assert now["/proc/sys/net/ipv4/tcp_rmem"].split()[2] == before["/proc/sys/net/ipv4/tcp_rmem"].split()[2]
    assert somaxconn(space) == "888"
    _, err = start("tune", "restore").communicate(timeout=120)
    assert "ND-92-41" in err
    assert "--force" in err
    assert forced().count("put back") == 4
    now = spaces.state(space)
    assert {k: v for k, v in before.items() if now.get(k) != v} == {}
    assert not list((state / "journal").glob("*.jsonl"))


def test_the_command_leaves_what_somebody_else_changed_and_says_so(space: str, state: Path) -> None:
    child = start("tune", "apply", "--set", "net.core.somaxconn=8192", "--set", "dev.v0.txqueuelen=7",
                  "--where", space)  # fmt: skip
    wait_for(space, "8192")
    # it says so once all is set and noted
    assert child.stdout is not None
    while "somaxconn" not in child.stdout.readline():
        pass
    sysctl.write(space, "net.core.somaxconn", "888")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 92
    assert f"ND-92-41: net.core.somaxconn in {space} is 888, and not 8192 as we" in err
    assert "old values restored" not in err
    assert somaxconn(space) == "888"
    # until somebody decides, it is known
    for arguments, code in ((("restore", "--json"), 92), (("restore", "--force"), 0), (("restore",), 0)):
        done = start(*arguments)
        out, err = done.communicate(timeout=120)
        assert done.returncode == code, err
        if code:
            assert len(json.loads(out)["left"]) == 1
    assert somaxconn(space) == "4096"
    assert not list((state / "journal").glob("*.jsonl"))


def test_what_a_living_process_holds_is_not_forced(space: str, state: Path) -> None:
    script = f"""
import os, signal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({{"net.core.somaxconn": 777}}, {space!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed(script)
    sysctl.write(space, "net.core.somaxconn", "888")
    with apply(plan({"net.core.somaxconn": 999}, space)):
        forced()
        assert somaxconn(space) == "999"
    assert somaxconn(space) == "888"
    forced()
    assert somaxconn(space) == "4096"


def test_a_journal_that_does_not_say_what_became_of_it_is_put_back(space: str, state: Path) -> None:
    """As written by an earlier version, or cut off before all was set."""
    notes = Journal()
    applied = apply(plan({"net.core.somaxconn": 777}, space), notes)
    lines = notes.path.read_text().replace(proc.start_time(os.getpid()).__repr__(), "1").splitlines()
    earlier = notes.path.with_name("1-1.jsonl")
    earlier.write_text("\n".join(line for line in lines if "became" not in line) + "\n")
    sysctl.write(space, "net.core.somaxconn", "888")
    assert len(journal.restore(only=earlier).undone) == 1
    assert somaxconn(space) == "4096"
    applied.restore()


def test_a_file_of_the_machine_that_somebody_else_changed_is_left(tmp_path: Path) -> None:
    file, notes = tmp_path / "value", Journal(tmp_path / "journal")
    file.write_text("new\n")
    number = notes.write("sysctl", path=str(file), old="old")
    notes.became({number: "new"})
    file.write_text("theirs\n")
    with pytest.raises(Error, match=r"ND-92-41.*is theirs, and not new as we"):
        notes.undo(number)
    file.write_text("new\n")
    notes.undo(number)
    assert file.read_text() == "old"
