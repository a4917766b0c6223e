"""Whose a port forward was, by what collectors got of a NAT: while it is there, when it is removed, and after the NAT."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, root, until
from nat_hosts import Hosts, configuration
from test_nat_ends import Collectors, begun, ended

pytestmark = root

OUTSIDE = "203.0.113.20"


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def asked(lab: Lab, port: int, when: str, logs: Path) -> tuple[int, dict[str, Any]]:
    """The answer of `nat who`, and its exit code."""
    words = (f"{OUTSIDE}:{port}", str(logs), "--at", when, "--protocol", "tcp", "--tolerance", "0s", "--json")
    done = lab.run("nat", "who", *words)
    return done.code, json.loads(done.out)


@pytest.mark.sampled(4, of="NATs that run for a while")
def test_a_forward_is_its_subscribers_until_it_is_removed(lab: Lab, hosts: Hosts) -> None:
    folder = lab.base / "logs"
    folder.mkdir()
    collectors = Collectors(hosts.box, folder)
    collectors.start()
    name = f"w{os.getpid()}"
    log = {"syslog": "tcp://127.0.0.1:4514", "ipfix": "127.0.0.1:4739"}
    forwards = [
        {"protocol": "tcp", "outside": f"{OUTSIDE}:{port}", "inside": f"10.0.0.{last}:8443"}
        for port, last in ((443, 1), (8443, 2))
    ]
    file = lab.write("nat.json", configuration(name, log=log, forwards=forwards))
    child = begun(lab, hosts, file)

    def logged(kind: str, count: int) -> bool:
        return collectors.syslog.exists() and collectors.syslog.read_text().count(f" {kind} ") == count

    until(lambda: logged("mapping-create", 2), 60, "no records of the forwards")
    during = now()
    lab.write("nat.json", configuration(name, log=log, forwards=forwards[1:]))
    assert json.loads(lab.good("nat", "reload", file, "--json").out)["changed"] == ["forwards"]
    until(lambda: logged("mapping-delete", 1), 60, "no record of the end")
    after = now()
    assert ended(lab, child).code == 0
    assert logged("mapping-create", 2) and logged("mapping-delete", 2)
    for logs in (collectors.syslog, collectors.ipfix, folder):
        for port, inside in ((443, "10.0.0.1"), (8443, "10.0.0.2")):
            code, found = asked(lab, port, during, logs)
            assert (code, found["subscribers"]) == (0, [{"inside": inside, "vlans": []}]), (logs, found)
            assert found["found"][0]["by"] == "mapping" and found["found"][0]["inside_port"] == 8443
        # since the reload nobody has the one, and the answer says since when
        until_when = asked(lab, 443, during, logs)[1]["found"][0]["until"]
        code, found = asked(lab, 443, after, logs)
        assert (code, found["error"]["code"]) == (99, "ND-99-22"), (logs, found)
        assert until_when in found["error"]["what"] and during < until_when.replace("Z", "+00:00") < after
        assert asked(lab, 8443, after, logs)[0] == 0
    lab.clean()
