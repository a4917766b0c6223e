"""What an impaired path did to the kernel's packets is what our stream says of it; ping and iperf3 say the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import NETDYNOD, PATIENT, Lab, root, sh, until
from test_impair import FAR, Wan

from netdyno.core.result import Repetition

pytestmark = [
    root,
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun"),
]
HELD = 3
"""Packets that `reorder` lets pass first."""


def port(path: Wan) -> dict[str, Any]:
    """A DPDK port on the path's near end, beside the kernel's own address there."""
    own = "198.18.0.9"
    mine, theirs = path.mac(path.near), path.mac(path.far)
    # of frames from a host's kernel a DPDK port expects whole checksums
    sh("ip", "netns", "exec", path.far, "ethtool", "-K", "wan0", "tx", "off")
    sh("ip", "-n", path.far, *f"route add {own} dev wan0".split())
    sh(
        "ip",
        "-n",
        path.far,
        *f"neigh replace {own} lladdr {mine} dev wan0 nud permanent".split(),
    )
    return {
        "name": "a",
        "device": "af_packet:wan0",
        "ip": own,
        "mac": mine,
        "peer_mac": theirs,
    }


def stream(lab: Lab, path: Wan, transport: str = "sockets") -> Repetition:
    """A thousand datagrams over the path and back."""
    within, beyond = (("ip", "netns", "exec", space) for space in (path.near, path.far))
    reflector = lab.spawn(*beyond, NETDYNOD, "reflect", "--udp", "7", "--bind", FAR)
    listening = (*beyond, "ss", "-Huln", "sport", "=", ":7")
    until(lambda: sh(*listening).strip(), 60, "the reflector does not come up")
    model = {"stream": {"rate": "1k/s", "count": 1000, "size": "100B"}}
    document: dict[str, Any] = {
        "name": "seen",
        "phases": {
            "warmup": "0s",
            "measure": "1500ms",
            "drain": "2s",
            "sample": "500ms",
        },
        "validity": PATIENT,
        "groups": [
            {
                "name": "s",
                "target": f"udp://{FAR}:7",
                "devices": 1,
                "model": model,
                "load": {"closed": {"flows": 1}},
            }
        ],
    }
    if transport == "dpdk":
        document["transport"] = {"dpdk": {"ports": [port(path)]}}
    done = lab.good("run", lab.write("p.json", document), prefix=within)
    reflector.terminate()
    reflector.communicate(timeout=60)
    # a port sets the interface's address, and with that the kernel forgets whom it knows there
    known = f"neigh replace {FAR} lladdr {path.mac(path.far)} dev wan0 nud permanent"
    sh("ip", "-n", path.near, *known.split())
    return done.trial


@pytest.mark.parametrize("transport", ["sockets", "dpdk"])
def test_stream_and_ping_count_what_the_path_did(lab: Lab, verdict: Verdict, transport: str) -> None:
    ill = "delay=20ms,loss=5%,duplicate=5%,reorder=5%"
    path = Wan(lab, "--there", ill, "--back", "delay=10ms", "--seed", "9")
    trial = stream(lab, path, transport)
    said = path.ping("-c", "200", "-i", "0.005", "-W", "1")
    pings, came = (int(n) for n in re.findall(r"(\d+) packets transmitted, (\d+) received", said)[0])
    doubled = int(found[1]) if (found := re.search(r"\+(\d+) duplicates", said)) else 0
    last = path.end()
    there, back = last["a_to_b"], last["b_to_a"]
    [group] = trial.groups
    total = group.total
    # each packet that went in was ours or ping's, and so was each that was lost or came twice
    assert total.messages_sent + pings == there["packets_in"] == 1200
    lost = total.messages_sent - total.messages_delivered
    assert lost + (pings - came) == there["lost"] > 30
    assert total.duplicates + doubled == there["duplicated"] > 30
    assert (back["lost"], back["duplicated"], back["packets_in"]) == (
        0,
        0,
        there["packets_out"],
    )
    # ping tells no order
    order = group.reordering
    assert order is not None
    assert 20 < total.reordered <= there["reordered"]
    # copies are no arrivals, and others that are held back may come between
    assert order.extent.count == total.reordered
    assert HELD - 1 <= order.extent.p50 <= HELD + 1
    # the least delay is the path's, and ping's
    least = group.delays["round_trip"].min / 1e6
    pinged = float(re.findall(r"= ([\d.]+)/", said)[0])
    assert least >= 30.0 <= pinged
    verdict.undisturbed()
    assert least == pytest.approx(pinged, abs=2.0)


def no_room(space: tuple[str, ...]) -> int:
    """Datagrams of a namespace so far that a socket had no room for."""
    names, counts = (
        line.split() for line in sh(*space, "cat", "/proc/net/snmp").splitlines() if line.startswith("Udp:")
    )
    return int(counts[names.index("RcvbufErrors")])


@pytest.mark.skipif(not shutil.which("iperf3"), reason="iperf3 is not installed")
def test_iperf3_loses_the_same_share(lab: Lab) -> None:
    path = Wan(lab, "--there", "delay=1ms,loss=5%", "--seed", "5")
    ours = stream(lab, path).groups[0]
    within, beyond = (("ip", "netns", "exec", space) for space in (path.near, path.far))
    server = lab.spawn(*beyond, "iperf3", "-s", "-1", "-B", FAR)
    until(
        lambda: sh(*beyond, "ss", "-Htln", "sport", "=", ":5201").strip(),
        60,
        "iperf3 does not come up",
    )
    client = ("iperf3", "-c", FAR, "-u", "-b", "8M", "-l", "500", "-t", "1", "-J")
    full = no_room(beyond)
    theirs: dict[str, Any] = json.loads(sh(*within, *client))["end"]["sum"]
    server.communicate(timeout=60)
    # what a server that had no CPU had no room for came over the path all the same
    on_the_path = theirs["lost_packets"] - (no_room(beyond) - full)
    last = path.end()["a_to_b"]
    lost = ours.total.messages_sent - ours.total.messages_delivered
    # besides datagrams iperf3 has a connection on the path, a few of whose packets are lost as well
    assert 0 <= last["lost"] - lost - on_the_path <= 10, (
        last,
        lost,
        on_the_path,
        theirs,
    )
    # four deviations of the binomial distribution for either
    for missing, all_of in ((lost, 1000), (on_the_path, theirs["packets"])):
        assert missing / all_of == pytest.approx(0.05, abs=4 * (0.05 * 0.95 / all_of) ** 0.5)
    assert ours.total.duplicates == ours.total.reordered == 0
