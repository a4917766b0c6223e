"""Every command that proves a chain says the same of the same proof: its verdict, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.switch.chain import proof as proofs
from netdyno.switch.chain import steering, verify
from netdyno.switch.chain.connections import ConnectionReport, DatagramReport
from netdyno.switch.chain.failover import FailoverReport
from netdyno.switch.chain.liveness import LivenessEvent
from netdyno.switch.chain.reprogram import ReprogramReport
from netdyno.switch.chain.reroute import RerouteReport
from netdyno.switch.chain.sight import Fault
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.steering import DIRECTIONS, Port, Rule, Step
from netdyno.switch.chain.takeover import TakeoverReport
from netdyno.switch.chain.underlay import TunnelReport
from netdyno.switch.chain.verify import DirectionResult, Verification
from netdyno.switch.controller.foreign import Listed

GOOD = Verification([], 0.1, {})
RULE = steering.rules(checked({"vnfs": {"fw": {"kind": "bridge"}}, "chain": ["fw"]}, "x"))[0]
PATH = [Step(Port("client", "eth0"), True)]
FLOW = Listed(0x77, 60_000, "p0", ("tcp", "tp_dst=80"), "output:p1", 3)
MTU = Fault("packets of more than 1,400 bytes are lost", host="tunnel")
BAD = {
    "way": Verification([DirectionResult("x", "forward", "tcp", PATH, 0, untested="no packet")], 0.1, {}),
    "flow": Verification([], 0.1, {}, foreign=[FLOW]),
    "tunnel": Verification([], 0.1, {}, TunnelReport("vxlan key 1", 50, 1500, 1450, {}, fault=MTU)),
}
WORDS = {"way": "x forward (tcp): no packet", "flow": "cookie=0x77", "tunnel": "more than 1,400 bytes"}


def failover(during: Verification, after: Verification) -> FailoverReport:
    event = LivenessEvent("b", True, "probes lost", 1.0, 2.0, "bypassed")
    return FailoverReport("b", "stop", "open", event, 0.1, 0.2, 9, 1, 0.3, during, 1.0, after)


REPORTS: dict[str, Callable[[Verification], tuple[str, Any, Any]]] = {
    # the verdict, the document, and the proof in it
    "failover": lambda it: _of(failover(it, GOOD), "during"),
    "repair": lambda it: _of(failover(GOOD, it), "after"),
    "reroute": lambda it: _of(RerouteReport([], [], [], it, GOOD), "during"),
    "way back": lambda it: _of(RerouteReport([], [], [], GOOD, it), "after"),
    "takeover": lambda it: _of(TakeoverReport([], [ConnectionReport(5, 0.1, "")], [], [], it), "proof"),
    "reprogram": lambda it: _of(ReprogramReport([], DatagramReport(9, 0, 0.1), it), "proof"),
}


def _of(report: Any, key: str) -> tuple[str, Any, Any]:
    document = json.loads(json.dumps(report.document()))
    said = report.first_fault if hasattr(report, "first_fault") else report.lost
    return said, document, document[key]


@pytest.mark.parametrize("command", REPORTS)
def test_the_verdict_is_that_of_the_proof(command: str) -> None:
    said, document, proof = REPORTS[command](GOOD)
    assert not said and not document.get("wrong", document.get("lost")) and proof["good"]
    for kind, bad in BAD.items():
        said, document, proof = REPORTS[command](bad)
        assert WORDS[kind] in said and document.get("wrong", document.get("lost")) == said
        assert proof == json.loads(json.dumps(bad.document())), "as of `chain verify`"
        assert not proof["good"] and WORDS[kind] in proof["fault"]


def test_a_proof_that_fails_ends_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(proofs.verifying, "verify", lambda lab: lab.proof)
    assert proofs.proven(SimpleNamespace(proof=GOOD), "x", noted.append) is GOOD  # type: ignore[arg-type]
    assert noted
    for kind, bad in BAD.items():
        with pytest.raises(Error, match="ND-99-40") as told:
            proofs.proven(SimpleNamespace(proof=bad), "x", noted.append)  # type: ignore[arg-type]
        assert WORDS[kind] in str(told.value) and len(noted) == 1


def test_a_datagram_that_is_lost_while_rules_change_is_told() -> None:
    lost = ReprogramReport([], DatagramReport(90, 2, 0.1), GOOD)
    assert lost.lost == "2 of 90 datagrams were lost" == lost.document()["lost"]


@pytest.mark.parametrize(
    ("missed", "what", "named"),
    [
        (Fault("the server never receives it", rule=RULE), "in other headers", RULE),
        (None, "in other headers", None),
        (Fault("the server receives it twice", rule=RULE, excess=True), "twice", RULE),
    ],
)
def test_a_packet_in_wrong_headers_names_the_rule_behind_which_it_is_missed(
    missed: Fault | None, what: str, named: Rule | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule that sent it so lost it for those who follow the packet; one too many is a fault of its own."""
    stray = Fault("fw.in receives a packet in other headers", host="switch", leak=True)

    def followed(*given: Any) -> DirectionResult:
        direction = given[5]
        return DirectionResult("x", direction, "udp", PATH, 1, missed if direction == "forward" else None)

    for name in ("described", "quiet", "awaited"):
        monkeypatch.setattr(verify.transit, name, lambda _: 0.0)
    monkeypatch.setattr(verify, "directions", lambda *_: DIRECTIONS)
    monkeypatch.setattr(verify, "made", lambda *_: {"forward": stray})
    monkeypatch.setattr(verify, "_followed", followed)
    lab: Any = SimpleNamespace(rules=[], transit=0.0)
    captures: Any = SimpleNamespace(clear=lambda: None, quiet=lambda *_: None, exact=True)
    talk: Any = SimpleNamespace(
        version=4, answered=True, relays=(), run=lambda _: None, protocol="arp", failed=None
    )
    forward, reverse = verify._rounds(lab, captures, {}, "x", talk, 1, None)
    assert forward.fault and what in str(forward.fault) and forward.fault.rule is named
    assert reverse.good
