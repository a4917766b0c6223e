"""OpenDaylight and ONOS by their REST interfaces: stand-ins in front of a real switch, and a real OpenDaylight."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.lab.network import Network
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.controller import onos, opendaylight, rest
from netdyno.switch.controller.base import Controller, ControllerSite
from netdyno.switch.controller.kinds import parse
from netdyno.switch.driver.base import Flow, Wiring
from netdyno.switch.driver.ovs import OvsNetdev
from netdyno.switch.openflow.action import EncapNsh, Select
from netdyno.system.journal import journal

from ..conftest import root
from .hosts import lab, passes
from .stand_in import OnosStandIn, RestconfStandIn, serving
from .test_controller import FLOWS, table

STAND_INS = {"opendaylight": RestconfStandIn, "onos": OnosStandIn}
kinds = pytest.mark.parametrize("kind", STAND_INS)
COMMON = [one for one in FLOWS if one.cookie not in (7, 8, 9, 10)]
"""Flows that both can carry: without NSH and groups."""


@pytest.fixture
def switch() -> Iterator[tuple[OvsNetdev, Network]]:
    if why := OvsNetdev.missing():
        pytest.skip(why)
    with lab(2, "r") as net:
        one = OvsNetdev(DutSite("sw", "", net.namespace("sw")), wiring=Wiring(learning=False))
        try:
            one.setup()
            yield one, net
        finally:
            one.teardown()


@contextlib.contextmanager
def controlled(switch: OvsNetdev, folder: Path, text: str) -> Iterator[Controller]:
    space, chosen = switch.place.namespace, parse(text)
    assert space
    made = chosen.kind(ControllerSite(switch, space, folder, journal()), chosen.count, chosen.options)
    try:
        made.setup()
        yield made
    finally:
        made.teardown()


def plain(lines: list[str]) -> list[str]:
    """Without cookies and priorities, which ONOS has of its own."""
    return sorted(
        ",".join(w for w in one.split(",") if "cookie" not in w and "priority" not in w) for one in lines
    )


@root
@pytest.mark.drawn
@kinds
def test_flows_are_those_that_the_switch_would_get_without(
    kind: str, switch: tuple[OvsNetdev, Network], tmp_path: Path
) -> None:
    """The witness is ovs-ofctl: it writes the same flows, and lists the same table."""
    one, net = switch
    flows = COMMON if kind == "onos" else [one for one in FLOWS if one.cookie not in (7, 8, 9)]
    one.program(flows)
    witness = table(one)
    one.program([])
    with serving(STAND_INS[kind]) as there, controlled(one, tmp_path, f"{kind},{there.options}") as made:
        made.program(flows)
        assert plain(table(one)) == plain(witness)
        assert kind == "onos" or table(one) == witness
        assert passes(net, "h0", "h1")
        counted = {made.number(cookie): packets for cookie, packets in one.flow_packets().items()}
        assert counted[1] >= 1, "packets of a flow are found by its number"
        there.requests.clear()
        changed = [Flow(1, "p0", []), *flows[1:3]]
        made.program(changed)
        assert len(table(one)) == 3 and not passes(net, "h0", "h1", seconds=0.7)
        assert sum(verb in ("PUT", "POST") for verb, _ in there.requests) == 1, (
            "a flow that stays is not sent"
        )
    assert not there.flows and not there.groups, "nothing of it stays in the controller"


@root
@pytest.mark.drawn
@kinds
def test_a_chain_is_steered_and_a_wrong_rule_is_named(kind: str) -> None:
    if why := OvsNetdev.missing():
        pytest.skip(why)
    with serving(STAND_INS[kind]) as there:
        plain_chain = {
            "controller": f"{kind},{there.options}", "steering": "vlan",
            "vnfs": {"a": {"kind": "bridge"}, "look": {"kind": "dpi"}}, "chain": ["a", "look"],
            "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["look"]}},
        }  # fmt: skip
        with ChainLab(checked(plain_chain, "x")) as made:
            found = verify(made)
            assert found.good, found.first_fault
            assert set(found.flows) == {one.flow.cookie for one in made.rules}
            one = next(one for one in mutants(made.rules) if one.name.startswith("misdirect"))
            made.program(one.rules)
            tried = [verify(made, 1).named for _ in range(2)]
            assert any(named and named <= one.changed for named in tried), (one.name, tried)


@root
@pytest.mark.drawn
@kinds
def test_faults_of_a_controller_are_told(
    kind: str, switch: tuple[OvsNetdev, Network], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong account, path and answer, silence, nobody there: what is wrong, where, what to do."""
    one, _ = switch
    monkeypatch.setattr(rest, "TIMEOUT", 0.5)
    monkeypatch.setattr(opendaylight, "PATIENCE", 0.5)
    monkeypatch.setattr(onos, "PATIENCE", 0.5)
    monkeypatch.setenv("SECRET", "hunter2-of-tests")
    with serving(STAND_INS[kind]) as there:
        text = f"{kind},{there.options}"

        def refused(words: str = text) -> Error:
            with pytest.raises(Error) as wrong, controlled(one, tmp_path, words) as made:
                made.program(COMMON[:2])
            assert wrong.value.fix and "hunter2" not in f"{wrong.value.what}{wrong.value.fix}"
            return wrong.value

        found = refused(f"{text},password=env:SECRET")
        assert found.code == "ND-92-62" and "401" in found.what and "password=" in found.fix
        for status, answer, said in (
            (404, b"<html>no</html>", "status 404"), (400, b'{"errors": {"error": [{"error-message": "bad leaf"}]}}', "bad leaf"),
            (200, b"<html>hello</html>", "no JSON"), (500, b"", "status 500: nothing"),
        ):  # fmt: skip
            there.broken = status, answer
            found = refused()
            assert found.code == "ND-92-62" and said in found.what and there.url in found.what
        there.broken, there.silent = None, 1.0
        assert "does not answer" in refused().what
        there.silent, there.deaf = 0.0, True
        assert "2 of 2 are missing" in refused().what
        there.deaf = False
        with controlled(one, tmp_path, text) as made:
            made.program(COMMON[:2])
            assert len(table(one)) == 2
        monkeypatch.setattr("netdyno.switch.driver.ovs_daemon.CONNECT", 1.5)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
            found = refused(f"{kind},url={there.url},openflow=127.0.0.1:{port}")
            assert f"127.0.0.1:{port}" in found.what and "refused" in found.what and "openflow=" in found.fix
            assert "refused" in refused(f"{kind},url=http://127.0.0.1:{port}").what


@kinds
def test_what_it_cannot_do_is_told(kind: str) -> None:
    class Ports(OvsNetdev):
        @property
        def numbers(self) -> Mapping[str, int]:
            return {"p0": 1, "p1": 2}

    make = opendaylight.document if kind == "opendaylight" else onos.document
    one = Ports(DutSite("switch", "", "none"))
    wrong = [
        Flow(1, "p0", [EncapNsh(1, 255), "p1"]),
        Flow(1, "p0", [], {"nsh_spi": "1"}),
        Flow(1, "p0", [], {"colour": "red"}),
    ]
    if kind == "onos":
        wrong += [Flow(1, "p0", [Select(("p0", "p1"))]), Flow(1, "p0", [], priority=20_000)]
    for flow in wrong:
        with pytest.raises(Error) as refused:
            make(one, "openflow:1", flow)
        assert refused.value.code == "ND-104-83" and refused.value.fix
    with pytest.raises(Error) as nowhere:
        make(one, "openflow:1", Flow(1, "p9", []))
    assert nowhere.value.code == "ND-104-81"


@pytest.mark.parametrize(
    "text",
    [
        "onos", "onos,url=", "onos,url=ftp://x", "onos,url=http://", "onos,url=http://u:hunter2@x",
        "onos,url=http://x:99999", "onos,url=http://x,openflow=x", "onos,url=http://x,openflow=x:0",
        "onos,url=http://x,password=hunter2", "onos,url=http://x,hunter2", "onos,url=http://x,url=http://y",
        "onos:2,url=http://x", "static,url=http://x", "opendaylight,address=http://x", "opendaylight:0",
        "opendaylight:6", "opendaylight:3,url=http://x",
    ],
)  # fmt: skip
def test_wrong_settings_are_told(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Error) as wrong:
        parse(text, "--controller")
    assert wrong.value.code == "ND-104-83" and wrong.value.fix
    assert "hunter2" not in json.dumps([wrong.value.what, wrong.value.fix, wrong.value.at])
    example = Path(__file__).parents[3] / "examples" / "chain.yaml"
    assert call(["chain", "verify", str(example), "--controller", text]) == 104
    assert "hunter2" not in capfd.readouterr().err


@pytest.mark.parametrize("body", [b"[" * 200_000, b"{" * 200_000, b"9" * 10_000, b"\xff\xfe"])
def test_answers_of_nonsense_are_told(body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head, [body]) as url, pytest.raises(Error) as wrong:
        rest.Rest("onos", url, "u", "p").get("/x")
    assert wrong.value.code == "ND-92-62" and "no JSON" in wrong.value.what


def test_one_that_sends_a_byte_now_and_then_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "TIMEOUT", 1.0)
    began = time.monotonic()
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", [b" "] * 600, 0.1) as url:
        with pytest.raises(Error) as wrong:
            rest.Rest("onos", url, "u", "p").get("/x")
        assert time.monotonic() - began < 50
    assert "does not answer GET /x within 1 s" in wrong.value.what


@contextlib.contextmanager
def answering(head: bytes, parts: Sequence[bytes], pause: float = 0.0) -> Iterator[str]:
    """The address of a server that answers one request, part by part."""

    def serve() -> None:
        one, _ = listening.accept()
        with one, contextlib.suppress(OSError):
            one.recv(65536)
            one.sendall(head)
            for part in parts:
                one.sendall(part)
                time.sleep(pause)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(60)


def test_settings() -> None:
    chosen = parse("opendaylight,url=https://x/odl,user=me,password=file:/p")
    assert chosen.options.switches == ("x", 6653) and chosen.options.user == "me"  # type: ignore[attr-defined]
    assert parse("opendaylight:3").count == 3 and parse("opendaylight").count == 1
    chosen = parse("onos,url=http://[::1]:8181,openflow=[::1]:6633")
    assert chosen.options.switches == ("::1", 6633)  # type: ignore[attr-defined]
