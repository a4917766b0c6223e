"""NICs are taken from the kernel and given back, whatever happens. There is no NIC: a tree of files stands for one."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from netdyno.cli import app, bind
from netdyno.errors import Error
from netdyno.system import binding, journal, undo
from netdyno.system.journal import restore
from netdyno.system.machine import Machine

from .test_journal import dead_journal
from .tree import Kernel, plant

NIC, OTHER, OWN = "0000:83:00.0", "0000:83:00.1", "0000:01:00.0"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Path) -> Machine:
    """A two-port NIC server with vfio-pci loaded, and a kernel that listens."""
    machine = plant("two-port-server", tmp_path / "root")
    (machine.root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    monkeypatch.setattr(undo, "tell", Kernel(machine).tell)
    return machine


def driver(machine: Machine, address: str = NIC) -> tuple[str | None, str]:
    asked = (machine.device(address) / "driver_override").read_text().strip()
    return Machine(machine.root).nic(address).driver, asked


def test_bound_and_given_back(server: Machine) -> None:
    before = binding.bind(NIC, server)
    assert (before.driver, before.interfaces) == ("ixgbe", ("ens3f0",))
    assert driver(server) == ("vfio-pci", "vfio-pci")
    # once more changes nothing, and writes nothing down
    count = journal.journal().open_entries
    assert binding.bind(NIC, server).driver == "vfio-pci"
    assert journal.journal().open_entries == count
    assert binding.unbind(NIC, server) == "ixgbe"
    assert driver(server) == ("ixgbe", "(null)")
    assert binding.unbind(NIC, server) == "ixgbe"


BIND = """
import os, signal, sys
from pathlib import Path
from netdyno.system import binding, undo
from netdyno.system.machine import Machine
from tests.tree import Kernel

machine, at, seen = Machine(Path(sys.argv[1])), int(sys.argv[2]), 0

def maybe_die(_):
    global seen
    seen += 1
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)

undo.tell = Kernel(machine, maybe_die).tell
for address in sys.argv[3:]:
    binding.bind(address, machine)
"""


def command(machine: Machine, at: int, *addresses: str) -> int:
    """`netdyno bind` in a process of its own, which is killed before its write number `at`."""
    code = textwrap.dedent(BIND)
    arguments = [sys.executable, "-c", code, str(machine.root), str(at), *addresses]
    return subprocess.run(arguments, cwd=Path(__file__).parents[1], check=False).returncode


def test_a_binding_outlives_its_command_and_runs_and_ends_with_restore(server: Machine, state: Path) -> None:
    assert command(server, 0, NIC, OTHER) == 0
    assert restore().undone == []  # what each run does first
    assert driver(server)[0] == driver(server, OTHER)[0] == "vfio-pci"
    assert app.call(["restore"]) == 0
    assert driver(server) == driver(server, OTHER) == ("ixgbe", "(null)")
    assert list((state / "journal").glob("*.jsonl")) == []


@pytest.mark.parametrize("at", [1, 2, 3])
def test_killed_at_every_write(server: Machine, state: Path, at: int) -> None:
    assert command(server, at, NIC) == -signal.SIGKILL
    report = restore(wanted=lambda _: True)
    assert not report.failed
    assert driver(server) == ("ixgbe", "(null)")
    assert list((state / "journal").glob("*.jsonl")) == []


def test_what_was_given_back_is_not_undone_again(server: Machine, state: Path) -> None:
    assert command(server, 0, NIC, OTHER) == 0
    assert binding.unbind(NIC, server) == "ixgbe"
    assert driver(server, OTHER)[0] == "vfio-pci"
    # somebody else binds it now: that is not ours to undo
    undo.override(server.device(NIC), "vfio-pci")
    assert len(restore(wanted=lambda _: True).undone) == 1
    assert driver(server)[0] == "vfio-pci"
    assert driver(server, OTHER)[0] == "ixgbe"
    assert list((state / "journal").glob("*.jsonl")) == []


def test_a_nic_that_somebody_else_bound_is_given_back_too(server: Machine) -> None:
    undo.override(server.device(NIC), "vfio-pci")
    assert binding.unbind(NIC, server) == "ixgbe"


def test_a_nic_that_the_kernel_needs_is_refused_unless_forced(server: Machine) -> None:
    with pytest.raises(Error) as refused:
        binding.bind(OWN, server)
    assert refused.value.code == "ND-104-30"
    assert "eno1 has 192.0.2.10/24" in refused.value.what
    assert "default route" in refused.value.what
    assert driver(server, OWN) == ("igb", "(null)")
    binding.bind(OWN, server, force=True)
    assert driver(server, OWN)[0] == "vfio-pci"
    assert binding.unbind(OWN, server) == "igb"


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("0000:99:00.0", "no such device"),
        ("0000:00:1f.2", "no network device"),
        ("ens3f0", "not a PCI address"),
        ("../..", "not a PCI address"),
    ],
)
def test_what_is_no_nic_is_refused(server: Machine, address: str, what: str) -> None:
    for work in (binding.bind, binding.unbind):
        with pytest.raises(Error, match=what) as refused:
            work(address, server)
        assert refused.value.exit_code == 104


def test_what_is_missing_is_told_before_anything_changes(server: Machine) -> None:
    (server.device(NIC) / "iommu_group").unlink()
    with pytest.raises(Error, match="no IOMMU"):
        binding.bind(NIC, server)
    (server.root / "sys/bus/pci/drivers/vfio-pci").rmdir()
    with pytest.raises(Error) as missing:
        binding.bind(NIC, server)
    assert (missing.value.code, missing.value.fix) == ("ND-92-37", "sudo modprobe vfio-pci")
    assert driver(server) == ("ixgbe", "(null)")
    assert journal.journal().open_entries == 0


def test_when_the_driver_does_not_take_it_all_is_as_before(
    server: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(server)
    kernel.refused.add("vfio-pci")
    monkeypatch.setattr(undo, "tell", kernel.tell)
    with pytest.raises(Error, match="did not take it") as failed:
        binding.bind(NIC, server)
    assert failed.value.code == "ND-92-37"
    assert driver(server) == ("ixgbe", "(null)")
    assert journal.journal().open_entries == 0


def test_a_boot_has_undone_it_already(server: Machine, state: Path) -> None:
    entry = {
        "seq": 1,
        "kind": "binding",
        "path": str(server.device(NIC)),
        "driver": "ixgbe",
        "to": "vfio-pci",
    }
    undo.override(server.device(NIC), "vfio-pci")
    path = dead_journal(state, entry | {"kept": True}, boot="another")
    assert restore(wanted=lambda _: True).undone == []
    assert driver(server)[0] == "vfio-pci"
    assert not path.exists()


def test_the_verbs(
    server: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bind, "Machine", lambda: Machine(server.root))
    monkeypatch.setattr(bind.library, "machine", lambda: Machine(server.root))
    (server.root / "sys/kernel/iommu_groups/40/devices" / OTHER).mkdir()
    assert app.call(["bind", NIC]) == 0
    told = capfd.readouterr()
    assert told.out == f"{NIC}: vfio-pci has it; before: ixgbe, ens3f0\n"
    assert f"netdyno bind {OTHER}" in told.err
    assert app.call(["bind", NIC, OWN]) == 104
    assert f"{NIC}: vfio-pci had it already" in capfd.readouterr().out
    assert app.call(["unbind", NIC]) == 0
    assert capfd.readouterr().out == f"{NIC}: ixgbe has it\n"
    assert os.geteuid() or driver(server) == ("ixgbe", "(null)")
