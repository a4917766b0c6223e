"""A reproduction in a virtual machine: it sets what is of the whole machine there, and nothing of it here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from lab import Lab, root, until

from netdyno.system.vm import setup

pytestmark = [root, pytest.mark.limit(900)]
PATIENCE = 840.0
"""Seconds: without KVM, beside other tests on a busy machine, it is slow."""
QEMU = "qemu-system-x86_64"
NAME, VALUE = "net.core.rmem_default", 999424
"""A parameter of the whole machine, and a value that nobody else would set."""
TABLES = f"""
format: netdyno-tuning/1
name: vm
repeat: 2
benches:
  burst: {{workload: udp-burst, options: {{datagrams: 2000}}}}
tables:
  - name: Table
    setting: {NAME}={VALUE}
    rows: [{{bench: burst, metric: loss}}]
"""


@pytest.fixture
def command(lab: Lab) -> list[str]:
    """The reproduction, where there can be a virtual machine."""
    made = setup.find()
    if isinstance(made, setup.MissingRequirement):
        pytest.skip(f"no virtual machine: {made.why}")
    return [
        "tune",
        "reproduce",
        lab.write("vm.yaml", TABLES),
        "--level",
        "0.5",
        "--spare",
        "24",
    ]


def value() -> str:
    return Path("/proc/sys", NAME.replace(".", "/")).read_text().strip()


def left(lab: Lab) -> list[str]:
    """Folders of virtual machines that processes of the lab have."""
    return [path.name for path in Path("/run/netdyno").glob("nd-vm-*") if path.name in folders(lab)]


def folders(lab: Lab) -> str:
    """The lab's journals, as text."""
    return "".join(path.read_text() for path in (lab.state / "journal").glob("*.jsonl"))


@pytest.mark.full
def test_what_is_of_the_whole_machine_is_set_in_the_virtual_one_only(lab: Lab, command: list[str]) -> None:
    page = lab.base / "page.html"
    child = lab.start(*command, "--json", "--html", str(page))
    seen, made = set(), set()

    def over() -> bool:
        seen.add(value())
        made.update(left(lab))
        return child.poll() is not None

    until(over, PATIENCE, "it does not end")
    done = lab.wait(child)
    assert done.code == 0, done.text
    assert str(VALUE) not in seen, "it was set here"
    # what it says comes as from a command that ran here
    told = json.loads(done.out)
    (row,) = told["tables"][0]["rows"]
    # it is read back where it is set; and what a sleeping reader does not lose is more with it
    assert max(without for without, _ in row["pairs"]) > min(with_it for _, with_it in row["pairs"])
    assert "virtual machine up after" in done.err
    assert page.is_file()
    # and so does the run
    (listed,) = json.loads(lab.good("runs", "list", "--json").out)
    assert (listed["kind"], listed["name"].partition("-")[0]) == (
        "reproduce",
        "reproduce",
    )
    environment = done.result.environment
    assert environment["virtual_machine"] in ("kvm", "tcg")
    assert done.result.command[:3] == ["netdyno", "tune", "reproduce"]
    assert "burst" in lab.good("runs", "show", listed["id"]).text
    assert len(made) == 1, "its folder was seen"
    assert not (Path("/run/netdyno") / made.pop()).exists()
    lab.clean()


def test_killed_it_leaves_what_restore_ends(lab: Lab, command: list[str]) -> None:
    child = lab.start(*command)
    until(lambda: QEMU in programs(lab), 240, "QEMU is not started")
    # by itself it would end soon after
    os.kill(programs(lab)[QEMU], signal.SIGSTOP)
    child.send_signal(signal.SIGKILL)
    child.wait(30)
    assert {QEMU, "virtiofsd"} <= programs(lab).keys()
    (folder,) = left(lab)
    done = lab.good("restore")
    assert QEMU in done.text
    assert not (Path("/run/netdyno") / folder).exists()
    lab.clean()


def programs(lab: Lab) -> dict[str, int]:
    """The lab's processes by the names of their programs."""
    found = {}
    for pid in lab.processes():
        with contextlib.suppress(OSError):
            found[Path(f"/proc/{pid}/exe").readlink().name] = pid
    return found
