"""The server sees the arrivals of a fleet as those of one host: in the order of its hosts' turns, evenly spaced."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from fleet_lab import HOSTS, SERVER, FleetLab
from inconclusive import Verdict
from lab import Done, Lab, root

pytestmark = root

RATE, SECONDS = 10, 4


@pytest.fixture
def fleet(lab: Lab) -> FleetLab:
    return FleetLab(lab)


def arrivals(fleet: FleetLab) -> list[tuple[float, str]]:
    """When the server got each request, and from which host."""
    names = {address: host for host, address in HOSTS.items()}
    lines = (fleet.lab.base / "access.log").read_text().splitlines()
    return sorted((float(line.split()[-1]), names[line.split()[0]]) for line in lines)


def run(fleet: FleetLab, **group: Any) -> Done:
    """A load of ten devices, of which everything counts: three, two and five of them."""
    made = {"name": "web", "target": f"http://{SERVER}", "devices": 10} | group
    profile = {
        "name": "arrivals",
        "phases": {"warmup": "0s", "measure": f"{SECONDS}s", "drain": "5s", "sample": "200ms"},
        "validity": {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0},
        "groups": [made],
    }
    return fleet.run("run", fleet.lab.write("arrivals.json", profile), "--fleet", fleet.name, "-q")


def planned() -> list[str]:
    """Whose turn each arrival is, of hosts whose devices are as 3 : 2 : 5."""
    own = {"a": 3, "b": 2, "c": 5}
    count = RATE * SECONDS
    turns = sorted(
        ((2 * turn + 1) / (2 * devices), host) for host, devices in own.items() for turn in range(count)
    )
    return [host for _, host in turns[:count]]


@pytest.mark.parametrize("shape", ["open", "closed"])
def test_hosts_take_turns(fleet: FleetLab, verdict: Verdict, shape: str) -> None:
    fleet.up(fleet.local())
    if shape == "open":
        load: dict[str, Any] = {"model": {"http": {"requests": 1}}, "load": {"open": {"rate": f"{RATE}/s"}}}
    else:
        # ten devices that come alive within a second, and send each second
        load = {"model": {"http": {"interval": "1s"}}, "load": {"closed": {"ramp": "1s", "flows": 1}}}
    done = run(fleet, **load)
    assert done.code == 0, done.text
    seen = arrivals(fleet)
    print("\n".join(f"{at - seen[0][0]:8.3f} {host}" for at, host in seen))
    assert len(seen) == RATE * SECONDS
    first = seen[0][0]
    off = [abs(at - first - number / RATE) for number, (at, _) in enumerate(seen)]
    gaps = [after - before for (before, _), (after, _) in pairwise(seen)]
    even = median(off) < 0.5 / RATE and sum(gap < 0.2 / RATE for gap in gaps) < len(gaps) / 4
    if not even:
        verdict.processors_were_free()
    assert even
    # as they are due: an arrival that is late by chance is behind others, but few are
    wrong = sum(host != due for (_, host), due in zip(seen, planned(), strict=True))
    if wrong > len(seen) / 4:
        verdict.processors_were_free()
    assert wrong <= len(seen) / 4
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()


@pytest.mark.parametrize(
    ("group", "hosts"),
    [
        ({"total": 2, "model": {"http": {"requests": 1}}, "load": {"open": {"rate": "20/s"}}}, {"a", "c"}),
        ({"model": {"http": {"requests": 1}}, "load": {"open": {"rate": "20/s", "max_flows": 1}}}, {"c"}),
    ],
)
def test_hosts_without_a_share_of_a_limit_send_nothing(
    fleet: FleetLab, group: dict[str, Any], hosts: set[str]
) -> None:
    fleet.up(fleet.local())
    done = run(fleet, **group)
    assert done.code == 0, done.text
    counted = fleet.counted()
    assert set(counted) == hosts, done.text
    if "total" in group:
        assert counted.total() == group["total"]
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()
