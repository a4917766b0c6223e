"""The kernel's NAT as a device under test; the contract of all is in `tests/test_dut.py`."""

import socket

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.lab.dut.base import has
from netdyno.lab.network import Network
from netdyno.nat.dut.kernel_nat import IDLE, TIMEOUTS, KernelNat, mask
from netdyno.nat.dut.sessions import SECONDS, SESSIONS, tear_down
from netdyno.system import namespace

from ..conftest import root
from ..test_dut import network

pytestmark = root

__all__ = ["network"]


def test_the_kernels_nat_changes_no_rules_of_the_machine_itself() -> None:
    with pytest.raises(Error, match="this machine itself") as refused:
        KernelNat(DutSite("nat", "127.0.0.1")).setup()
    assert (refused.value.code, refused.value.at) == ("ND-104-07", "duts.nat")


def test_the_kernels_sessions_are_cleared_as_conntrack_does(network: Network) -> None:
    if not has("nft"):
        pytest.skip("nft is not installed")
    dut = KernelNat(DutSite("server", network.address("server"), network.namespace("server")))

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for port in range(9000, 9050):
                udp.sendto(b"x", ("10.8.0.1", port))

    try:
        dut.setup()
        namespace.inside(network.namespace("server"), send)
        assert dut.counters()["sessions"] >= 50
        kept = namespace.inside(network.namespace("server"), lambda: [one.read_text() for one in TIMEOUTS])
        assert [int(one) for one in kept] == [IDLE, IDLE]
        tear_down(dut)
        counters = dut.counters()
        assert counters[SESSIONS] >= 50 > counters["sessions"]
        assert counters[SECONDS] > 0
    finally:
        dut.teardown()


@pytest.mark.parametrize(
    ("cores", "text"),
    [
        ((0,), "1"),
        ((1, 3), "a"),
        ((31,), "80000000"),
        ((32,), "1,00000000"),
        ((0, 33), "2,00000001"),
        ((95, 0), "80000000,00000000,00000001"),
    ],
)
def test_a_mask_of_cores_is_in_words_of_32(cores: tuple[int, ...], text: str) -> None:
    assert mask(cores) == text
