"""`tune apply --keep`: values that outlive a boot, in files of sysctl.d and udev, and how they are taken back."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system import journal, proc, sysctl
from netdyno.tuning import persist
from netdyno.tuning.plan import plan

from .. import spaces
from ..conftest import root
from ..spaces import somaxconn

pytestmark = root


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(f"ndt-keep-{os.getpid()}") as name:
        yield name


KEEP = """
import sys
from pathlib import Path
from netdyno.tuning import persist
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
setting = {"net.core.somaxconn": 8192, "net.ipv4.tcp_rmem.max": 67108864, "dev.v0.txqueuelen": 7,
           "dev.v0.rps_cpus": "3", "dev.v0.gro": "off", "dev.v0.qdisc": "pfifo", "dev.t0.coalesce_rx_frames": 32}
planned = plan({"net.ipv4.tcp_fin_timeout": 15, "dev.v0.gso": "off"} if sys.argv[2:] else setting)
# the space stands for the machine
persist.in_other_namespace = lambda: False
persist.check(planned)
persist.persist(apply(planned), Path(sys.argv[1]))
"""


def test_kept_on_purpose_and_taken_back(space: str, tmp_path: Path, state: Path) -> None:
    before, etc = spaces.state(space), tmp_path / "etc"
    inside = ["ip", "netns", "exec", space, sys.executable, "-c", KEEP, str(etc)]
    subprocess.run(inside, check=True)
    lines = (etc / persist.SYSCTL).read_text().splitlines()[1:]
    default = str(sysctl.read(space, "net.ipv4.tcp_rmem")).split()[1]
    assert lines == ["net.core.somaxconn = 8192", f"net.ipv4.tcp_rmem = 4096 {default} 67108864"]
    rules = (etc / persist.UDEV).read_text()
    match = 'ACTION=="add", SUBSYSTEM=="net", KERNEL=="v0", '
    for action in (
        'RUN+="/sbin/ip link set dev %k txqueuelen 7"',
        """RUN+="/bin/sh -c 'for f in /sys/class/net/%k/queues/rx-*/rps_cpus; do echo 3 > $$f; done'\"""",
        'RUN+="/sbin/ethtool -K %k rx-gro off"',
        'RUN+="/sbin/tc qdisc replace dev %k root handle 4e44: pfifo"',
    ):
        assert match + action + "\n" in rules
    assert 'RUN+="/sbin/ethtool -C %k rx-frames 32"' in rules
    # it outlives the process, and starts of others
    assert journal.restore().undone == []
    assert somaxconn(space) == "8192"
    # another one adds to it, in files of its own; what is kept already is not kept twice
    subprocess.run([*inside, "second"], check=True)
    assert [path.name for path in persist.kept(etc)] == [
        "netdyno-tune-2.conf", "netdyno-tune.conf", "netdyno-tune-2.rules", "netdyno-tune.rules"
    ]  # fmt: skip
    second = etc / "sysctl.d/netdyno-tune-2.conf"
    assert second.read_text().splitlines()[1:] == ["net.ipv4.tcp_fin_timeout = 15"]
    assert sysctl.read(space, "net.ipv4.tcp_fin_timeout") == "15"
    for setting in ({"net.ipv4.tcp_fin_timeout": 20}, {"net.ipv4.tcp_rmem.min": 8192}, {"dev.v0.gso": "on"}):
        other = KEEP.replace("sys.argv[2:] else setting", f"False else {setting}")
        failed = subprocess.run([*inside[:-2], other, str(etc)], check=False, capture_output=True, text=True)
        assert "ND-104-07" in failed.stderr and "is kept already" in failed.stderr
    assert len(persist.kept(etc)) == 4
    # and boots: the file has set it again
    for path in (state / "journal").glob("*.jsonl"):
        path.write_text(path.read_text().replace(proc.boot_id(), "another-boot"))
    done = subprocess.run(
        ["ip", "netns", "exec", space, sys.executable, "-c",
         "from netdyno.cli.app import call; import sys; sys.exit(call(['tune', 'restore', '--json']))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["undone"]) == 13
    assert [path.name for path in etc.rglob("netdyno*")] == []
    now = spaces.state(space)
    assert {k: v for k, v in before.items() if now.get(k) != v} == {}
    assert not list((state / "journal").glob("*.jsonl"))


def test_nothing_of_a_namespace_can_be_kept(space: str, tmp_path: Path) -> None:
    with pytest.raises(Error, match="ND-104-07"):
        persist.check(plan({"net.core.somaxconn": 8192}, space))


def test_nothing_is_kept_from_within_a_namespace_that_is_not_the_machines(space: str) -> None:
    script = "import sys; from netdyno.cli.app import call; sys.exit(call(sys.argv[1:]))"
    words = ["tune", "apply", "--keep", "--dry-run", "--set", "net.core.somaxconn=5551"]
    inside = ["ip", "netns", "exec", space, sys.executable, "-c", script, *words]
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    assert done.returncode == 104
    assert "ND-104-07" in done.stderr and "--keep" in done.stderr
    assert not persist.in_other_namespace()


@pytest.mark.parametrize(("own", "refused"), [("-n", True), ("", False)])
def test_where_the_first_process_may_not_be_looked_at_the_kernel_tells(own: str, refused: bool) -> None:
    """Which namespace is its first one: an unnamed one (`unshare -n`) is not."""
    look = "from netdyno.tuning import persist; print(persist.in_other_namespace())"
    hide = 'mount -t tmpfs none /proc/1 && ! stat /proc/1/ns/net 2> /dev/null && exec "$0" -c "$1"'
    command = ["unshare", "-m", *own.split(), "sh", "-c", hide, sys.executable, look]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{refused}\n", done.stderr


def test_a_value_that_is_in_force_already_is_kept_too(space: str, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    before = somaxconn(space)
    script = KEEP.replace("sys.argv[2:] else setting", "False else json.loads(sys.argv[2])")

    def keep(**setting: object) -> None:
        code = "import json\n" + script
        words = [sys.executable, "-c", code, str(etc), json.dumps(setting)]
        subprocess.run(["ip", "netns", "exec", space, *words], check=True)

    now = {"net.core.somaxconn": int(before), "dev.v0.gso": "on"}
    keep(**now, **{"net.ipv4.tcp_fin_timeout": 17})
    lines = (etc / persist.SYSCTL).read_text().splitlines()[1:]
    assert sorted(lines) == [f"net.core.somaxconn = {before}", "net.ipv4.tcp_fin_timeout = 17"]
    assert 'RUN+="/sbin/ethtool -K %k tx-generic-segmentation on"' in (etc / persist.UDEV).read_text()
    # once is enough
    keep(**now)
    assert len(persist.kept(etc)) == 2
    # alone, too
    keep(**{"net.ipv4.tcp_keepalive_intvl": int(sysctl.read(space, "net.ipv4.tcp_keepalive_intvl") or 0)})
    assert len(persist.kept(etc)) == 3
    taken = "import sys; from netdyno.cli.app import call; sys.exit(call(['tune', 'restore']))"
    subprocess.run(["ip", "netns", "exec", space, sys.executable, "-c", taken], check=True)
    assert not persist.kept(etc)
    assert somaxconn(space) == before


def test_lines_that_others_added_to_a_kept_file_stay(space: str, tmp_path: Path) -> None:
    kept = tmp_path / "etc" / persist.SYSCTL
    inside = ["ip", "netns", "exec", space, sys.executable, "-c"]
    subprocess.run([*inside, KEEP, str(tmp_path / "etc")], check=True)
    with kept.open("a") as file:
        file.write("# the admin's\nvm.swappiness = 10\n")
    script = "import sys; from netdyno.cli.app import call; sys.exit(call(['tune', 'restore']))"
    done = subprocess.run([*inside, script], capture_output=True, text=True, check=True)
    assert "lines that others added stay" in done.stdout
    assert kept.read_text() == "# the admin's\nvm.swappiness = 10\n"


def test_a_link_in_place_of_a_kept_file_is_removed_and_its_target_left(space: str, tmp_path: Path) -> None:
    kept, other = tmp_path / "etc" / persist.SYSCTL, tmp_path / "secret"
    inside = ["ip", "netns", "exec", space, sys.executable, "-c"]
    subprocess.run([*inside, KEEP, str(tmp_path / "etc")], check=True)
    other.write_text("word\n")
    kept.unlink()
    kept.symlink_to(other)
    script = "import sys; from netdyno.cli.app import call; sys.exit(call(['tune', 'restore']))"
    subprocess.run([*inside, script], check=True)
    assert not kept.is_symlink() and not kept.exists()
    assert other.read_text() == "word\n"


def test_what_is_kept_goes_back_where_it_was_set(space: str, tmp_path: Path) -> None:
    """In the boot in which it was set, also from another namespace."""
    before = somaxconn(space)
    subprocess.run(
        ["ip", "netns", "exec", space, sys.executable, "-c", KEEP, str(tmp_path / "etc")], check=True
    )
    assert somaxconn(space) == "8192"
    with spaces.made(f"ndt-else-{os.getpid()}") as other:
        sysctl.write(other, "net.core.somaxconn", "8192")
        script = "import sys; from netdyno.cli.app import call; sys.exit(call(['tune', 'restore']))"
        subprocess.run(["ip", "netns", "exec", other, sys.executable, "-c", script], check=True)
        assert somaxconn(other) == "8192"
    assert somaxconn(space) == before


KEPT_BESIDE = """
import subprocess, sys
from pathlib import Path
from netdyno.cli.app import call
from netdyno.tuning import persist
# /etc of this test's own, over the machine's
tmp, file, says = sys.argv[1:]
for step in (
    "mount --make-rprivate /", f"mount -t tmpfs none {tmp}", f"mkdir {tmp}/upper {tmp}/work",
    f"mount -t overlay none -o lowerdir=/etc,upperdir={tmp}/upper,workdir={tmp}/work /etc",
    "mount -t tmpfs none /usr/lib/sysctl.d", "rm -rf /etc/sysctl.conf /etc/sysctl.d", "mkdir /etc/sysctl.d",
):
    subprocess.run(step.split(), check=True)
Path(file).write_text(f"net.core.somaxconn = {says}\\n")
# the space stands for the machine
persist.in_other_namespace = lambda: False
code = call(["tune", "apply", "--keep", "--set", "net.core.somaxconn=8192"])
subprocess.run(["sysctl", "--system"], check=True, capture_output=True)
print(Path("/proc/sys/net/core/somaxconn").read_text().strip())
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("file", "says", "wins"),
    [
        ("/etc/sysctl.conf", "128", True),
        ("/etc/sysctl.d/zz-later.conf", "256", True),
        ("/etc/sysctl.d/10-earlier.conf", "512", False),
        ("/etc/sysctl.conf", "8192", None),
    ],
)
def test_the_file_that_is_said_to_win_is_the_one_whose_value_sysctl_sets(
    space: str, tmp_path: Path, file: str, says: str, wins: bool | None
) -> None:
    """Real files, read by the real `sysctl --system`, in a namespace."""
    before = somaxconn(space)
    inside = ["ip", "netns", "exec", space, "unshare", "-m", sys.executable, "-c", KEPT_BESIDE]
    done = subprocess.run([*inside, str(tmp_path), file, says], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "conflict" in line]
    if wins is None:
        assert not told
    else:
        (line,) = told
        assert f"net.core.somaxconn is also set to {says} in {file}" in line
        assert ("wins at boot" if not wins else "which is read later and wins at boot") in line
        assert ("ours wins at boot" in line) == (not wins)
    assert done.stdout.splitlines()[-1] == (says if wins else "8192")
    sysctl.write(space, "net.core.somaxconn", before)
