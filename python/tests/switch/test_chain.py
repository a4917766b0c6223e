"""Service chains: descriptions, rules, judgement, and proof over real packets that each fault is named."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from sampled import points

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.switch.chain import layout, steering
from netdyno.switch.chain.bench import lengths, shortened
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import Mutant, mutants
from netdyno.switch.chain.sight import Sighting, judge
from netdyno.switch.chain.spec import checked, load
from netdyno.switch.chain.steering import Port, Step
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.system import namespace
from netdyno.system.journal import journal

from ..conftest import root

EXAMPLES = Path(__file__).parents[3] / "examples"
PLAIN: dict[str, Any] = {
    "vnfs": {
        "fw": {"kind": "firewall", "options": {"deny": ["tcp/23"]}},
        "look": {"kind": "dpi"},
        "nat": {"kind": "nat"},
    },
    "chain": ["fw", "look", "nat"],
    "classes": {
        "telnet": {"match": {"protocol": "tcp", "port": 23}, "chain": ["fw", "nat"], "blocked_by": "fw"},
        "dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["nat"]},
    },
}
BRIDGES: dict[str, Any] = {"vnfs": {"a": {"kind": "bridge"}, "b": {"kind": "bridge"}}, "chain": ["a", "b"]}


def changed(**more: Any) -> dict[str, Any]:
    return copy.deepcopy(PLAIN) | more


# ------------------------------------------------------------------------------------ description


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (changed(chain=["fw", "none"]), "'none', which is not in vnfs"),
        (changed(chain=["fw", "fw", "nat"]), "passes fw twice"),
        (changed(chain=["fw", "nat"]), "no traffic passes look"),
        (changed(switch="linux-bridge"), "cannot steer"),
        (changed(vnfs=PLAIN["vnfs"] | {"x": {"kind": "magic"}}), "is not known"),
        (changed(vnfs=PLAIN["vnfs"] | {"client": {"kind": "bridge"}}), "cannot be a name"),
        (
            changed(classes={"a": {"match": {"protocol": "udp", "port": 1}, "chain": ["fw"]}}),
            "in their order",
        ),
        (changed(vnfs=PLAIN["vnfs"] | {"fw": {"kind": "firewall", "options": {"deny": ["23"]}}}), "tcp/23"),
        (changed(options={"colour": "red"}), "colour"),
        (changed(chian=[]), "chian"),
    ],
)
def test_a_wrong_description_is_told(plain: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked(plain, "chain.yaml")
    assert wrong.value.code.startswith("ND-104-"), wrong.value
    assert words in str(wrong.value) or words in str(wrong.value.all), wrong.value


def test_a_file_that_describes_none(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("- 1\n")
    with pytest.raises(Error) as wrong:
        load(tmp_path / "x.yaml")
    assert wrong.value.code == "ND-104-82"


def test_the_examples_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["chain", "show", str(EXAMPLES / "chain.yaml"), "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["paths"]["telnet"] == "client → firewall → blocked"
    assert shown["paths"]["default"] == "client → firewall (copy to inspect) → nat → server"
    assert len(shown["rules"]) == 16
    assert call(["chain", "show", str(EXAMPLES / "chain-bridges.yaml")]) == 0


def test_routers_part_the_network() -> None:
    known = layout.addresses(checked(PLAIN, "x"))
    assert (known.client, known.server) == ("198.18.0.1", "198.18.1.2")
    assert known.inside == {"nat": "198.18.0.253/24"} and known.outside == {"nat": "198.18.1.254/24"}
    assert known.routes["client"] == {"default": "198.18.0.253"}
    plain = layout.addresses(checked(BRIDGES, "x"))
    assert (plain.client, plain.server, plain.routes["client"]) == ("198.18.0.1", "198.18.0.2", {})


def test_addresses_of_ipv6() -> None:
    made = checked(changed(ipv6=True), "x")
    known = layout.addresses(made, 6)
    assert (known.client, known.server) == ("2001:2::1", "2001:2:0:1::2")
    assert known.inside == {"nat": "2001:2::fd/64"} and known.outside == {"nat": "2001:2:0:1::fe/64"}
    assert known.routes["client"] == {"::/0": "2001:2::fd"}
    ends = {link.a.host: link.a.addresses for link in layout.topology(made).links}
    assert ends["server"] == ["198.18.1.2/24", "2001:2:0:1::2/64"]


def test_how_long_a_chain_can_be_measured() -> None:
    assert lengths(checked(BRIDGES, "x")) == [0, 1, 2] and lengths(checked(PLAIN, "x")) == [3]
    short = steering.rules(shortened(checked(BRIDGES, "x"), ["a"]))
    assert [(str(one.source), *map(str, one.targets)) for one in short] == [
        ("client", "a.in"), ("a.out", "server"), ("server", "a.out"), ("a.in", "client"),
    ]  # fmt: skip


# -------------------------------------------------------------------------------------- judgement

RULES = steering.rules(checked(BRIDGES, "x"))
WAY = [
    step
    for rule in RULES[:3]
    for step in (Step(rule.source, True), Step(rule.targets[0], False, rule))
]  # fmt: skip


def seen(steps: list[Step]) -> list[Sighting]:
    return [Sighting(at, step.port, step.sends) for at, step in enumerate(steps)]


def test_the_right_way_is_right() -> None:
    assert judge(WAY, seen(WAY)) is None
    assert judge(WAY, seen(WAY + WAY), sent=2) is None, "sent twice, it is seen twice"


@pytest.mark.parametrize("at", range(1, len(WAY)))
def test_where_it_is_lost(at: int) -> None:
    fault = judge(WAY, seen(WAY[:at]))
    assert fault
    if WAY[at].rule:
        assert fault.rule == WAY[at].rule and "never receives" in fault.what
    else:
        assert fault.host == WAY[at].port.host and "never sends" in fault.what


def test_a_copy_too_many_and_a_stray() -> None:
    twice = judge(WAY, [*seen(WAY), Sighting(9, WAY[-1].port, False)])
    assert twice and twice.excess and "2 times" in twice.what
    stray = judge(WAY, [*seen(WAY), Sighting(9, Port("x", "in"), False)])
    assert stray and stray.excess and "not on its path" in stray.what


def test_the_wrong_order() -> None:
    """Through b first, then a: each sees it once."""
    order = [WAY[0], WAY[3], WAY[4], WAY[1], WAY[2], WAY[5]]
    fault = judge(WAY, seen(order))
    assert fault and fault.rule == WAY[1].rule and "before" in fault.what


def test_mutants_are_all_of_some_rule() -> None:
    made = list(mutants(RULES))
    assert {cookie for one in made for cookie in one.changed} == {one.flow.cookie for one in RULES}
    assert len({one.name for one in made}) == len(made)
    flows = [one.flow for one in RULES]
    assert all([one.flow for one in mutant.rules] != flows for mutant in made)


# ------------------------------------------------------------------------------------ real packets


@pytest.fixture
def needs_ovs() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


@pytest.fixture
def lab(needs_ovs: None) -> Iterator[ChainLab]:
    with ChainLab(checked(PLAIN, "x")) as made:
        yield made


@root
def test_every_class_takes_its_path(lab: ChainLab) -> None:
    """Firewall, DPI on copies, NAT: both ways, in order, exactly once; the DPI tells what it saw."""
    found = verify(lab)
    assert found.good, [str(one.fault or one.untested) for one in found.directions if not one.good]
    ways = {(one.traffic, one.direction, one.protocol) for one in found.directions}
    assert ways == {
        ("telnet", "forward", "tcp"), ("telnet", "reverse", "tcp"), ("dns", "forward", "udp"), ("dns", "reverse", "udp"),
        *((("default", direction, protocol)) for direction in ("forward", "reverse") for protocol in ("arp", "udp", "tcp")),
        *(("two VLAN tags", direction, "udp") for direction in ("forward", "reverse")),
    }  # fmt: skip
    assert all(found.flows[rule.flow.cookie] >= 1 for rule in lab.rules), "the switch counted each rule, too"
    for one in found.directions:
        assert one.packets >= 1 and all(one.counts[str(step)] >= one.packets for step in one.steps)
    lab.vnfs["look"].teardown()
    assert re.search(r"\w+ [0-9]+ packets", lab.vnfs["look"].report())


@root
@pytest.mark.long
def test_every_mutant_is_named(lab: ChainLab) -> None:
    """Each rule deleted, misdirected, duplicated; neighbours reordered: a rule that was changed is named."""
    named(lab, list(mutants(lab.rules)))


@root
def test_mutants_are_named(lab: ChainLab) -> None:
    """Every ninth of each kind, and one of each at least."""
    first, step = points(9)
    kinds: dict[str, list[Mutant]] = {}
    for one in mutants(lab.rules):
        kinds.setdefault(one.name.split()[0], []).append(one)
    assert set(kinds) == {"delete", "misdirect", "duplicate", "no", "reorder"}
    some = [one for found in kinds.values() for one in found[(first - 1) % len(found) :: step]]
    named(lab, some)


def named(lab: ChainLab, broken: list[Mutant]) -> None:
    assert verify(lab).good
    wrong = []
    for one in broken:
        lab.program(one.rules)
        # a packet that a busy machine loses can hide a fault or look like one: then once more
        tries = []
        for _ in range(3):
            told = verify(lab, 1).named
            tries.append(told)
            if told and told <= one.changed:
                break
        else:
            wrong.append((one.name, tries))
    assert not wrong
    lab.program(lab.rules)
    assert verify(lab).good


@root
def test_a_firewall_that_lets_all_pass_is_named(lab: ChainLab) -> None:
    lab.vnfs["fw"].run("nft", "flush", "ruleset")
    found = verify(lab)
    (odd,) = [one for one in found.directions if not one.good]
    assert (odd.traffic, odd.direction) == ("telnet", "forward")
    assert odd.fault and odd.fault.host == "fw" and "to block" in odd.fault.what


@root
def test_a_function_that_stops_forwarding_is_named(needs_ovs: None) -> None:
    with ChainLab(checked(BRIDGES, "x")) as lab:
        lab.vnfs["b"].run("ip", "link", "set", "br0", "down")
        found = verify(lab)
        assert not found.good and not found.named
        assert {one.host for one in found.faults} == {"b"}


@root
def test_a_part_that_dies_is_told(lab: ChainLab) -> None:
    victim = lab.vnfs["look"].process
    assert victim
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait(30.0)
    with pytest.raises(Error) as died:
        verify(lab, 1)
    assert died.value.code == "ND-91-41" and "look" in died.value.what


@root
def test_nothing_is_left(needs_ovs: None) -> None:
    before, spaces = journal().open_entries, set(namespace.names())
    with ChainLab(checked(BRIDGES, "x")) as lab:
        ours = {lab.network.namespace(host) for host in lab.network.nodes}
        assert ours <= set(namespace.names()) - spaces
    until = time.monotonic() + 5
    while ours & set(namespace.names()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not ours & set(namespace.names()) and journal().open_entries == before


@root
def test_a_chain_is_run_and_resumed(
    needs_ovs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(BRIDGES))
    words = ["chain", "run", str(file), "--set", "seconds=1", "--metric", "throughput", "--level", "0.5",
             "--html", str(tmp_path / "two.html")]  # fmt: skip
    code = call([*words, "--repeat", "2"])
    (study,) = (tmp_path / "state").glob("tuning/chain-run-*.json")
    first = json.loads(study.read_text())
    if code == 90:
        for one in first["result"]["contrasts"]:
            verdict.trials_undisturbed(one["again"] if one["unequal"] else one["lost"])
    assert code == 0
    page = (tmp_path / "two.html").read_text()
    assert "client → a → b → server" in page
    assert first["result"]["proof"]["good"]
    assert call([*words, "--repeat", "2"]) == 0
    assert json.loads(study.read_text())["trials"] == first["trials"], "nothing was measured again"
