"""A name is no identity: what was set of a device or in a namespace is put back there, whatever is called so now."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.system import device, interface, journal, namespace, namespaces, sysctl
from netdyno.system.journal import Journal
from netdyno.tuning import access
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan

from ..conftest import root

pytestmark = root
SETTING = {
    "dev.d0.txqueuelen": 4321, "dev.d0.rps_cpus": "1", "dev.d0.tso": "off", "dev.d0.qdisc": "pfifo",
}  # fmt: skip
"""One by ip, one by sysfs, one by ethtool, one by tc."""


def ip(command: str) -> None:
    subprocess.run(f"ip {command}".split(), check=True, capture_output=True)


@pytest.fixture
def space() -> Iterator[str]:
    name = f"ndt-named-{os.getpid()}"
    ip(f"netns add {name}")
    try:
        for pair in ("d0", "e0"):
            ip(f"-n {name} link add {pair} type veth peer name {pair}p")
            ip(f"-n {name} link set {pair} up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def values(space: str, name: str) -> dict[str, object]:
    """The device's values now, by the ways of reading that writing has too."""
    ways = {
        "txqueuelen": access.Target("link", "txqlen", name),
        "rps_cpus": access.Target("sysfs", "queues/rx-*/rps_cpus", name),
        "qdisc": access.Target("qdisc", "", name),
        "features": access.Target("ethtool", "feature", name),
    }
    return {
        key: access.within(space, lambda target=target: dict(access.kind(target).read(target)))
        for key, target in ways.items()
    }


def renamed(space: str) -> None:
    """d0 gets another name, and another device its own."""
    ip(f"-n {space} link set d0 down")
    ip(f"-n {space} link set d0 name moved0")
    ip(f"-n {space} link set moved0 up")
    ip(f"-n {space} link set e0 down")
    ip(f"-n {space} link set e0 name d0")
    ip(f"-n {space} link set d0 up")


def test_a_device_that_was_renamed_gets_its_values_back_and_no_other_does(space: str, state: Path) -> None:
    before, other = values(space, "d0"), values(space, "e0")
    applied = apply(plan(SETTING, space), Journal())
    assert values(space, "d0") != before
    renamed(space)
    # somebody else's device of that name has the old value of ours
    ip(f"-n {space} link set d0 txqueuelen 77")
    applied.restore()
    assert values(space, "moved0") == before
    assert values(space, "d0") == other | {"txqueuelen": {"": 77}}


def test_so_after_it_was_killed(space: str, state: Path) -> None:
    before = values(space, "d0")
    applied = apply(plan(SETTING, space), Journal())
    left = applied.notes.path.read_text().replace(f'"owner": {os.getpid()}', '"owner": 4194300')
    applied.notes.path.unlink()
    (applied.notes.folder / "4194300-1.jsonl").write_text(left)
    (applied.notes.folder / "4194300-1.jsonl").chmod(0o600)
    renamed(space)
    report = journal.restore()
    assert (report.failed, report.left, report.gone) == ([], [], [])
    assert len(report.undone) == len(SETTING)
    assert values(space, "moved0") == before


def test_a_device_that_moved_to_another_namespace_is_found_there(space: str, state: Path) -> None:
    before, other = values(space, "d0"), f"{space}-b"
    applied = apply(plan({"dev.d0.txqueuelen": 4321}, space), Journal())
    ip(f"netns add {other}")
    try:
        ip(f"-n {space} link set d0 netns {other}")
        ip(f"-n {other} link set d0 name far0")
        applied.restore()
        assert values(other, "far0")["txqueuelen"] == before["txqueuelen"]
    finally:
        ip(f"netns del {other}")


def test_a_device_that_is_gone_is_said_and_is_no_success(
    space: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = Journal()
    applied = apply(plan({"dev.d0.txqueuelen": 4321, "net.core.somaxconn": 777}, space), notes)
    ip(f"-n {space} link del d0")
    ip(f"-n {space} link set e0 down")
    ip(f"-n {space} link set e0 name d0")
    with pytest.raises(Error, match=r"dev\.d0\.txqueuelen.*d0 \(index \d+, .*\) is gone") as raised:
        applied.restore()
    assert (raised.value.code, raised.value.exit_code) == (device.CODE, 92)
    # the rest was put back, the other device is as it was, and it is said once
    assert sysctl.read(space, "net.core.somaxconn") != "777"
    assert values(space, "d0")["txqueuelen"] == {"": 1000}
    assert notes.open_entries == 0


def test_the_command_does_not_say_that_it_restored_what_it_did_not(
    space: str, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from netdyno.tuning.verbs import apply as tune_apply

    shown = tune_apply._show

    def then_it_goes(*given: object) -> None:
        shown(*given)  # type: ignore[arg-type]
        ip(f"-n {space} link del d0")

    monkeypatch.setattr(tune_apply, "_show", then_it_goes)
    command = ["tune", "apply", "--set", "dev.d0.txqueuelen=4321", "--where", space, "--for", "1ms"]
    assert app.call(command) == 92
    said = capsys.readouterr().err
    assert device.CODE in said
    assert "old values restored" not in said


def test_another_namespace_of_the_name_is_left_alone(space: str, state: Path) -> None:
    """Deleted and made anew by somebody else, it has values, and an end, of its own."""
    notes = Journal()
    name = f"{space}-again"
    made = namespaces.make(notes, name)
    number = sysctl.change(notes, name, "net.core.somaxconn", "777")
    applied = apply(plan({"net.ipv4.tcp_fin_timeout": 33}, name), notes)
    ip(f"netns del {name}")
    ip(f"netns add {name}")
    try:
        sysctl.write(name, "net.core.somaxconn", "777")
        sysctl.write(name, "net.ipv4.tcp_fin_timeout", "33")
        applied.restore()
        notes.undo(number, made)
        assert sysctl.read(name, "net.core.somaxconn") == "777"
        assert sysctl.read(name, "net.ipv4.tcp_fin_timeout") == "33"
        assert name in namespace.names()
    finally:
        ip(f"netns del {name}")


def test_a_namespace_that_has_lost_its_name_is_found_by_its_processes(space: str, state: Path) -> None:
    name = f"{space}-unnamed"
    ip(f"netns add {name}")
    inside = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "60"])
    try:
        before = sysctl.read(name, "net.core.somaxconn")
        cookie = namespace.cookie(name)
        applied = apply(plan({"net.core.somaxconn": 777}, name), Journal())
        ip(f"netns del {name}")
        applied.restore()
        found = namespace.find_by_cookie(None, cookie)
        assert found is not None and found.where is not None
        assert sysctl.read(found.where, "net.core.somaxconn") == before
    finally:
        inside.kill()
        inside.wait()


def test_a_parameter_of_an_interface_follows_it(space: str, state: Path) -> None:
    key, notes = "net.ipv4.conf.d0.rp_filter", Journal()
    number = sysctl.change(notes, space, key, "2")
    renamed(space)
    sysctl.write(space, key, "1")
    notes.undo(number)
    assert sysctl.read(space, "net.ipv4.conf.moved0.rp_filter") == "0"
    assert sysctl.read(space, key) == "1"


def test_an_interface_below_a_port_is_put_back_under_its_new_name(space: str, state: Path) -> None:
    notes = Journal()

    def work() -> None:
        (number,) = interface.note(["d0"], notes)
        subprocess.run(["ip", "link", "set", "d0", "mtu", "1400"], check=True)
        interface.note_final_state([number], notes)
        subprocess.run(["ip", "link", "set", "d0", "down"], check=True)
        subprocess.run(["ip", "link", "set", "d0", "name", "moved0"], check=True)
        subprocess.run(["ip", "link", "set", "e0", "down"], check=True)
        subprocess.run(["ip", "link", "set", "e0", "name", "d0"], check=True)
        subprocess.run(["ip", "link", "set", "d0", "mtu", "1400"], check=True)
        notes.undo(number)
        found, other = interface.state("moved0"), interface.state("d0")
        assert found is not None and found["mtu"] == "1500"
        assert other is not None and other["mtu"] == "1400"

    namespace.inside(space, work)
