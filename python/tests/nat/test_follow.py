"""Which packets `netdyno nat trace` follows, and how it shows them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netdyno.cli import app
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.nat import follow, graph
from netdyno.nat.running import Running

from .shared import machine, nat

Said = pytest.CaptureFixture[str]
KNOWN = [
    {"outside": "203.0.113.17", "blocks": [[1024, 1535], [4096, 4607]]},
    {"outside": None, "blocks": []},
]


def telling(*found: dict[str, Any]) -> Running:
    """A NAT that has these."""
    told = SimpleNamespace(pages=lambda method, key, most, **_: (list(found[:most]), len(found) > most))
    return cast("Running", told)


def test_a_subscriber_is_looked_for_on_both_sides() -> None:
    plain = follow.subscriber("10.0.0.7", KNOWN)
    assert plain.startswith(
        "(ip and host 10.0.0.7) or (ip and dst host 203.0.113.17"
        " and (dst portrange 1024-1535 or dst portrange 4096-4607 or icmp)) or (vlan and ("
    )
    assert follow.subscriber("10.0.0.7", []).count("host") == 3


def test_a_subscriber_in_vlans_is_told_from_others_of_its_address() -> None:
    others = [
        {"vlans": vlans, "outside": f"203.0.113.{last}", "blocks": [[1024, 1535]]}
        for last, vlans in enumerate(([], [7], [100, 7]))
    ]
    for tags, vlans in (("", None), ("@0", []), ("@7", [7]), ("@100.7", [100, 7])):
        found, known = follow.of_subscriber(telling(*others), f"10.0.0.9{tags}")
        assert known
        outside = {last for last in range(3) if f"dst host 203.0.113.{last}" in found}
        assert outside == ({0, 1, 2} if vlans is None else {len(vlans)})
        checks = [f"ether[{14 + 4 * at}:2] & 0xfff = {vlan}" for at, vlan in enumerate(vlans or [])]
        assert found.count("ether[") == len(checks) and all(one in found for one in checks)
        assert found.count("ip and host 10.0.0.9") == (3 if vlans is None else 1)
    assert follow.of_subscriber(telling(*others), "10.0.0.9@8") == (
        "(vlan and ((ether[14:2] & 0xfff = 8 and ip and host 10.0.0.9)))",
        False,
    )


def test_the_one_in_a_vlan_is_found_among_many_of_its_address() -> None:
    many = [{"vlans": [vlan], "outside": "203.0.113.9", "blocks": [[1024, 1535]]} for vlan in range(1, 900)]
    found, known = follow.of_subscriber(telling(*many), "10.0.0.9@800")
    assert known and "dst host 203.0.113.9" in found


def test_an_address_without_a_port_is_no_mapping() -> None:
    with pytest.raises(Error, match="many subscribers' address"):
        follow.of_mapping(telling(), "203.0.113.17")


def test_a_mapping_is_its_two_endpoints() -> None:
    session = {"protocol": "tcp", "inside": "10.0.0.7:40007", "outside": "203.0.113.23:1031"}
    found = follow.mapping([session, session | {"protocol": "udp"}])
    assert "(udp and host 10.0.0.7 and port 40007)" in found and found.count("tcp") == 6
    assert "(tcp and host 10.0.0.7 and port 40007)" in found
    assert "(tcp and dst host 203.0.113.23 and dst port 1031)" in found
    icmp = follow.mapping([session | {"protocol": "icmp"}])
    assert "(icmp and host 10.0.0.7)" in icmp and "port" not in icmp


@pytest.fixture
def cgn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: Path) -> Iterator[None]:
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setattr("netdyno.paths.runtime", lambda: path)
    settings = nat()
    document = graph.document(settings, graph.layout(settings, machine(1, 4)))
    with Daemon(path / "nd-nat-cgn.sock", path / "nd-nat-cgn.log") as daemon, daemon.connect() as client:
        client.acquire()
        client.call("graph.run", graph=document)
        yield


def test_packets_are_shown_stage_by_stage(cgn: None, capsys: Said) -> None:
    assert app.call(["nat", "trace", "--subscriber", "10.0.0.7", "-n", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("conntrack") == 2
    assert "passed to outside" in said
    assert "now UDP 203.0.113.23:1031 > 198.51.100.9:53" in said
    assert app.call(["nat", "trace", "--outside", "203.0.113.23:1031", "-n", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["packets"]) == 1 and "dst port 1031" in found["filter"]


def test_what_is_not_there_is_said(cgn: None, capsys: Said) -> None:
    assert app.call(["nat", "trace", "--filter", "none", "--for", "0.2s"]) == 0
    assert "0 of 10 packets came within 0.2 s" in capsys.readouterr().err
    assert app.call(["nat", "trace", "--subscriber", "10.0.0.9", "-n", "1"]) == 0
    assert "no outside address yet" in capsys.readouterr().err
    assert app.call(["nat", "trace", "--outside", "203.0.113.99:1"]) == 104
    assert "nobody has 203.0.113.99:1 now" in capsys.readouterr().err
    for arguments in ([], ["--subscriber", "10.0.0.7", "--filter", "udp"]):
        assert app.call(["nat", "trace", *arguments]) == 104
        assert "which packets to follow" in capsys.readouterr().err
    assert app.call(["nat", "trace", "--filter", "udp", "-n", "65"]) == 104
