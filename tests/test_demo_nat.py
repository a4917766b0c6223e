"""`netdyno demo nat`, as a newcomer runs it, and cut short."""

from __future__ import annotations

import ipaddress
import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import NETDYNO, Lab, root, until

pytestmark = [root, pytest.mark.alone]

MACS = ["02:4e:44:00:00:00", "02:4e:44:00:00:01"]
"""Of the sites, in the order in which they came."""
FAULTS = {
    "bad_checksum",
    "malformed",
    "no_room",
    "unknown_port",
    "sessions_full",
    "table_full",
    "filtered",
    "spoofed",
}
"""Reasons to drop that nothing here gives."""


@pytest.mark.limit(120)
def test_subscribers_boot_and_surf(lab: Lab, verdict: Verdict) -> None:
    done = lab.run("demo", "nat", timeout=100)
    assert done.folder
    paths = dict(re.findall(r"^(result|report) +(\S+)$", done.out, re.MULTILINE))
    assert {Path(path).parent for path in paths.values()} == {done.folder}, done.text
    document: dict[str, Any] = json.loads(Path(paths["result"]).read_text())
    paths_compared = document["comparison"]
    if paths_compared["too_few"] or paths_compared["unequal"]:
        assert done.code == 90, done.text
        verdict.trials_undisturbed(Counter(paths_compared["again"]) + Counter(paths_compared["lost"]))
    assert done.code == 0, done.text
    booted(document)
    given(document, done.out)
    translated(document, done.out)
    # each of the five saw the load, and says what it cost
    assert [one["element"] for one in document["elements"]] == [
        "RX",
        "validity",
        "NAT",
        "ConnTrack",
        "TX",
    ]
    for one in document["elements"]:
        assert one["packets"] > 1000, one
        assert one["cycles_per_packet"] > 0, one
    # nothing of the load was dropped by the NAT
    dropped = {one["reason"] for one in document["drops"]}
    assert "not_bound" in dropped and not FAULTS & dropped, document["drops"]
    compared(document["comparison"])
    page = Path(paths["report"]).read_text()
    assert all(one["mac"] in page and one["address"] in page for one in document["sites"])
    assert all(one["outside"] in page for one in document["mappings"]["rows"])
    lab.clean()


def booted(document: dict[str, Any]) -> None:
    """Each has its address by DHCP, and who has none gets nowhere."""
    addresses = [one["address"] for one in document["dhcp"]]
    assert len(set(addresses)) == 2, addresses
    assert all(ipaddress.ip_address(one) in ipaddress.ip_network("10.0.0.0/24") for one in addresses)
    assert {one["router"] for one in document["dhcp"]} == {"10.0.0.254"}
    unleased = document["unleased"]
    assert unleased["address"] not in addresses
    assert not unleased["reached"] and unleased["dropped"] > 0, unleased


def given(document: dict[str, Any], shown: str) -> None:
    """The DHCP server outside gave each site a public address, one after another."""
    sites = document["sites"]
    assert [one["site"] for one in sites] == [one["address"] for one in document["dhcp"]]
    assert sorted(one["mac"] for one in sites) == MACS
    assert sorted(one["address"] for one in sites) == ["203.0.113.100", "203.0.113.101"]
    for one in sites:
        assert (one["server"], one["state"]) == ("203.0.113.1", "bound")
        assert 3000 < one["left_s"] <= 3600
        assert one["mac"] in shown and one["address"] in shown


def translated(document: dict[str, Any], shown: str) -> None:
    """Each is seen with the address of its site, and no endpoint is given twice."""
    rows = document["mappings"]["rows"]
    outside = [one["outside"] for one in rows]
    assert len(set(outside)) == len(rows) == 6, rows
    public = {(one["subscriber"], one["outside"].partition(":")[0]) for one in rows}
    assert public == {(one["subscriber"], one["address"]) for one in document["sites"]}, public
    private = {one["subscriber"]: one["address"] for one in document["dhcp"]}
    for one in rows:
        assert one["inside"].partition(":")[0] == private[one["subscriber"]]
        assert one["inside"] in shown and one["outside"] in shown


def compared(found: dict[str, Any]) -> None:
    """Both paths carried load, and ours only its own."""
    assert {one["metric"]["name"] for one in found["metrics"]} == {
        "throughput",
        "response_p99",
    }
    for trial in found["trials"]:
        if not trial["valid"]:
            continue
        assert trial["metrics"]["throughput"] > 1e6, trial
        forwarded = trial["counters"]["packets through the netdyno NAT"]
        frames = trial["metrics"]["throughput"] / 8 / 1500
        ours = trial["setting"]["path"] == "netdyno NAT"
        assert forwarded > frames if ours else forwarded < 1000, trial


def restored(lab: Lab) -> None:
    """What a killed one leaves is put back by the next command that is asked to."""
    done = subprocess.run(
        [NETDYNO, "restore"],
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.limit(180)
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("number", "code", "after"),
    [
        (signal.SIGINT, 105, lambda lab: None),
        (signal.SIGKILL, -signal.SIGKILL, restored),
    ],
    ids=["interrupted", "killed"],
)
def test_nothing_is_left_of_one_that_is_cut_short(
    lab: Lab, number: signal.Signals, code: int, after: Callable[[Lab], None]
) -> None:
    child = lab.start("demo", "nat")

    def loaded() -> bool:
        """Everything is there by then, as the load begins last; one that ended says why below."""
        return child.poll() is not None or len(list(lab.runs.glob("*-demo-nat-*/load-*.jsonl"))) == 2

    until(loaded, 110, "no load begins")
    child.send_signal(number)
    done = lab.wait(child, 60)
    assert done.code == code, done.text
    after(lab)
    lab.clean()
