"""Captures of a fleet: each host's packets come into the run's folder, and are those that the server counted."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from fleet_lab import HOSTS, SERVER, FleetLab
from lab import Lab, root, sh

pytestmark = root


def requests(capture: Path) -> Counter[str]:
    """Requests by sender, as tshark reads them; one packet is of one request."""
    words = ("-Y", "http.request", "-T", "fields", "-e", "ip.src", "-e", "ip.dst")
    rows = [line.split() for line in sh("tshark", "-r", str(capture), *words).splitlines()]
    assert {to for _, to in rows} == {SERVER}
    return Counter(sender for sender, _ in rows)


@pytest.mark.limit(300)
@pytest.mark.parametrize("launcher", ["local", "ssh"])
def test_each_host_s_packets_are_collected(lab: Lab, launcher: str) -> None:
    if not shutil.which("tshark"):
        pytest.skip("needs tshark (Debian: tshark)")
    fleet = FleetLab(lab)
    fleet.up(fleet.hosts(launcher))
    words = fleet.load(1, "--capture-filter", "tcp port 80")
    done = fleet.run(*words)
    assert done.code == 0, done.text
    assert done.folder is not None and done.trial.capture is not None
    assert {one.name: one.capture for one in done.trial.hosts} == {
        host: f"capture-{host}.pcapng" for host in HOSTS
    }
    counted = fleet.counted()
    assert (done.trial.capture.state, done.trial.capture.dropped) == ("stopped", 0)
    for host, address in HOSTS.items():
        file = done.folder / f"capture-{host}.pcapng"
        assert file.stat().st_mode & 0o077 == 0
        assert requests(file) == {address: counted[host]}
    assert fleet.run("fleet", "down", fleet.name).code == 0
    # nothing of them stays on the hosts
    fleet.clean()


def test_agents_that_are_reached_by_tls_alone_are_refused(lab: Lab) -> None:
    fleet = FleetLab(lab)
    fleet.up(fleet.hosts("address"))
    done = fleet.run(*fleet.load(1, "--capture"))
    assert done.code == 104 and "no file comes from the host a" in done.err, done.text
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()
