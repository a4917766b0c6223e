"""Rates that are changed on a fleet: shares that add up, and the changes of all hosts as one."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from netdyno.core.client import Client
from netdyno.core.wire import RateChange
from netdyno.errors import Error
from netdyno.fleet import rates
from netdyno.fleet.shard import Shard
from netdyno.fleet.steer import SteeringSocket

HOSTS = [Shard({}, {"web": 1}), Shard({}, {"web": 2, "dns": 5}), Shard({}, {"web": 5})]


def test_a_rate_is_shared_by_devices() -> None:
    asked = {"web": {"rate": "80/s"}, "dns": {"rate": "1k/s", "of": "arrivals"}}
    shares = [rates.share(asked, host, HOSTS) for host in HOSTS]
    assert [float(one["web"]["rate"].removesuffix("/s")) for one in shares] == [10, 20, 50]
    assert ["dns" in one for one in shares] == [False, True, False]
    assert shares[1]["dns"] == {"rate": "1000.000000000/s", "of": "arrivals"}


def test_a_rate_of_each_flow_is_no_share_and_daemons_refuse_what_they_do_not_know() -> None:
    asked = {"web": {"rate": "3/s", "of": "flow"}, "nowhere": {"rate": "5/s", "of": "flow"}}
    assert [rates.share(asked, host, HOSTS) for host in HOSTS] == [asked] * 3
    with pytest.raises(Error):
        rates.share({"web": {"rate": "many"}}, HOSTS[0], HOSTS)


def change(t: float, rate: float, before: float, of: str = "group") -> RateChange:
    return RateChange(t=t, group="web", of=of, rate=rate, before=before)


def test_changes_at_one_time_add_up() -> None:
    found = rates.merged([[change(1, 10, 50)], [change(1, 20, 100)], []])
    assert found == [change(1, 30, 150)]


def test_hosts_that_change_later_are_told_later() -> None:
    found = rates.merged([[change(1, 10, 50), change(4, 5, 10)], [change(1.2, 20, 100), change(4, 9, 20)]])
    assert found == [change(1, 110, 150), change(1.2, 30, 110), change(4, 14, 30)]


def test_a_rate_of_each_flow_stays_what_it_is() -> None:
    found = rates.merged([[change(1, 10, 50, "flow")], [change(1, 10, 50, "flow")]])
    assert found == [change(1, 10, 50, "flow")]


def test_the_socket_answers_as_a_daemon_does(tmp_path: Path) -> None:
    def refuse(**_: object) -> None:
        raise Error("ND-104-05", "no rate", at="groups.web", fix="Give one")

    path = tmp_path / "s.sock"
    steering = SteeringSocket(
        path, {"run.status": lambda: {"run": "r", "state": "running"}, "run.rate": refuse}
    )
    assert path.stat().st_mode & 0o077 == 0
    with Client(path) as client:
        assert client.status().run == "r"
        with pytest.raises(Error, match="no rate") as e:
            client.call("run.rate", groups={})
        assert (e.value.code, e.value.at) == ("ND-104-05", "groups.web")
        with pytest.raises(Error, match="no such method"):
            client.call("graph.list")
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))
        for line in (b"[]\n", b"noise\n", b'{"id": 7, "method": "run.status", "params": {"x": 1}}\n'):
            one.sendall(line)
            assert json.loads(one.recv(4096))["error"]["code"] == -32600
    steering.close()
    assert not path.exists()
