"""`netdyno nat run` between real hosts: it is asked for its sessions while they talk, and ends as it should."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from lab import Lab, root, until
from test_nat import ROUTER, SERVER, Hosts

pytestmark = root


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    try:
        made.up()
        yield made
    finally:
        made.down()


def configuration(name: str, **more: Any) -> dict[str, Any]:
    """Of a NAT on interfaces of the kernel."""
    return {
        "format": "netdyno-nat/1",
        "name": name,
        "inside": {"device": "af_packet:in0", "ip": "10.0.0.254/24"},
        "outside": {"device": "af_packet:out0", "ip": "203.0.113.2/24", "gateway": ROUTER},
        "pool": ["203.0.113.16/28"],
        **more,
    }


@pytest.mark.parametrize(
    ("execution", "workers"),
    [("run-to-completion", 1), ("run-to-completion", 2), ("pipeline", 1), ("pipeline", 2), ("core-set-1", 1)],
)
def test_sessions_of_hosts_that_talk_are_told(lab: Lab, hosts: Hosts, execution: str, workers: int) -> None:
    name = f"t{os.getpid()}-{workers}-{execution}"[:32]
    file = lab.write("nat.json", configuration(name, execution=execution, workers=workers))
    child = lab.start("nat", "run", file, "--for", "240s", "-q", prefix=("ip", "netns", "exec", hosts.box))
    ping = ("ping", "-c1", "-W5", "-I", "10.0.0.1", SERVER)
    until(lambda: "1 received" in hosts.from_inside(*ping, check=False), 60, "no way out")

    def asked(verb: str, *arguments: str) -> Any:
        return json.loads(lab.good("nat", verb, name, "--json", *arguments).out)

    sessions = asked("sessions", "--subscriber", "10.0.0.1")["sessions"]
    assert {one["protocol"] for one in sessions} == {"icmp"}
    (address,) = {one["outside"].partition(":")[0] for one in sessions}
    assert address.startswith("203.0.113.")
    assert asked("sessions", "--subscriber", "10.0.0.2")["sessions"] == []
    (subscriber,) = asked("subscribers")["subscribers"]
    assert (subscriber["address"], subscriber["outside"]) == ("10.0.0.1", address)
    found = asked("status")["workers"]
    assert len(found) == workers
    assert sum(one["sessions"] for one in found) == len(sessions)
    # both directions of a session meet on one worker, which has it all
    (own,) = (one for one in found if one["sessions"])
    assert own["forwarded_up"] >= 1
    assert own["forwarded_down"] >= 1
    # a second one of the name is refused, and the first goes on
    done = lab.run("nat", "run", file)
    assert done.code == 104
    assert "runs already" in done.text
    assert "1 received" in hosts.from_inside(*ping)
    child.send_signal(signal.SIGTERM)
    done = lab.wait(child)
    assert done.code == 0, done.text
    assert "no NAT named" in lab.run("nat", "status", name).text
    lab.clean()
