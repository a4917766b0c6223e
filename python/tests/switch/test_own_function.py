"""A function of the user's own in a chain: the example works, and one with a fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import Chain, checked, load
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.system import proc

from ..conftest import root

TOP = Path(__file__).parents[3]
EXAMPLES = TOP / "examples"

pytestmark = [root, pytest.mark.drawn]


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.chdir(TOP)


def of(program: str) -> Chain:
    """The example's chain with another program."""
    options = {"command": ["python3", program], "seconds": 1}
    return checked({"vnfs": {"own": {"kind": "command", "options": options}}, "chain": ["own"]}, "x")


def test_the_example_is_proved_and_its_end_is_told() -> None:
    with ChainLab(load(EXAMPLES / "chain-own.yaml")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        assert {one.traffic for one in found.directions} == {"telnet", "default", "two VLAN tags"}
        assert all("own" in str(one.steps) for one in found.directions if not one.refused)
        program = lab.vnfs["own"].process
        assert program
        lab.vnfs["own"].fail()
        program.wait(30.0)
        assert "the function own (SIGKILL)" in lab.dead()
    assert not list(proc.members(program.pid))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("other[one].send(frame)", "other[one].send(frame) if one is inside else None"),
        ("other[one].send(frame)", "[other[one].send(frame) for _ in range(2)]"),
    ],
)
def test_one_that_drops_or_doubles_is_named(tmp_path: Path, right: str, wrong: str) -> None:
    text = (EXAMPLES / "forwarder.py").read_text()
    assert text.count(right) == 1
    program = tmp_path / "forwarder.py"
    program.write_text(text.replace(right, wrong))
    with ChainLab(of(str(program))) as lab:
        found = verify(lab)
    assert not found.good
    assert {one.host for one in found.faults} == {"own"}, [str(one) for one in found.faults]


def test_one_that_ends_at_once_is_told(tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('no licence')\n")
    # on a busy machine it may end only after the second that it was given
    with pytest.raises(Error) as wrong, ChainLab(of(str(program))) as lab:
        verify(lab)
    assert wrong.value.code in ("ND-92-61", "ND-91-41") and "no licence" in wrong.value.what
