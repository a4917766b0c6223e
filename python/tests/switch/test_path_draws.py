"""Each trial of switches and chains draws what its paths lose by a seed of its own, and a search probes them."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.lab.impairment import WAYS, TrialSeeds
from netdyno.lab.links import UNASKED, Links
from netdyno.lab.network import Network
from netdyno.lab.topology import Topology
from netdyno.switch.bench import Spec, SwitchBench
from netdyno.switch.chain.bench import ChainBench
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.driver import DRIVERS
from netdyno.switch.reproduce import study as studies
from netdyno.system import namespace

from ..conftest import root
from .test_chain import BRIDGES

LOSS = {"loss": {"independent": "20%"}}
BRIDGE = {"switch": "linux-bridge"}


def test_no_two_trials_share_a_seed_and_all_follow_from_what_is_measured() -> None:
    def seeds() -> list[int]:
        made = TrialSeeds()
        return [
            made.next("bench", setting, seed) for seed in (1, 2) for setting in (BRIDGE, BRIDGE, {"x": 1})
        ]

    assert seeds() == seeds() and len(set(seeds())) == 6
    assert TrialSeeds().next("other", BRIDGE, 1) != TrialSeeds().next("bench", BRIDGE, 1)


@root
@pytest.mark.slow
def test_trials_of_switches_draw_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int | None] = []
    set_ = Links.set

    def watched(self: Links, link: Any, spec: Any, seed: int | None = None) -> None:
        told.append(seed)
        set_(self, link, spec, seed)

    monkeypatch.setattr(Links, "set", watched)
    options = {"seconds": 1}

    def trials(path: dict[str, Any]) -> list[int | None]:
        with SwitchBench(Spec(options=options, path=path)) as bench:
            return [bench.measure(BRIDGE, seed).path_seed for seed in (1, 1, 2)]

    drawn = trials({"a_to_b": LOSS})
    assert len(set(drawn)) == 3 and told == drawn
    assert trials({"a_to_b": LOSS}) == drawn
    fixed = {"seed": 7, "a_to_b": LOSS}
    assert trials(fixed) == [7, 7, 7]
    assert "seed 7: the same losses in each trial" in Spec(path=fixed).label
    with SwitchBench(Spec(options=options)) as bench:
        assert bench.measure(BRIDGE, 1).path_seed is None


@root
@pytest.mark.slow
def test_no_trial_begins_with_what_an_earlier_one_has_learned() -> None:
    """Hosts stay: their kernel would keep windows and round trips of a connection for the next switch's."""
    with SwitchBench(Spec(options={"seconds": 1})) as bench:
        assert bench.measure(BRIDGE, 1).valid
        assert bench.network
        for host in ("client", "server"):
            space = bench.network.namespace(host)
            kept = namespace.inside(
                space,
                lambda: subprocess.run(["ip", "tcp_metrics"], capture_output=True, text=True, check=True),
            )
            assert "cwnd" not in kept.stdout and "rtt" not in kept.stdout, kept.stdout


@root
@pytest.mark.drawn
def test_a_search_probes_its_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also a study of `reproduce`: one that was made whole is not measured."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    start = Links.start
    monkeypatch.setattr(
        Links, "start", lambda self, a, b, spec, *rest, **how: start(self, a, b, {}, *rest, **how)
    )
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(BRIDGES))
    words = [
        "chain",
        "search",
        str(file),
        "--target",
        "1Gbit/s",
        "--set",
        "seconds=1",
        "--path",
        "delay=40ms",
    ]
    assert call(words) == 92
    assert "ND-92-65: the client's path has no effect" in capfd.readouterr().err
    way = {"delay": {"constant": "40ms"}}
    study = {
        "format": "netdyno-switch-study/1", "title": "x", "chain": BRIDGES, "target": "1Gbit/s",
        "path": {"a_to_b": way, "b_to_a": way}, "quick": {"options": {"seconds": 1}},
    }  # fmt: skip
    (tmp_path / "longest.yaml").write_text(json.dumps(study))
    monkeypatch.setattr(studies, "folder", lambda: tmp_path)
    file.unlink()
    assert call(["reproduce", "switches", "longest", "--quick", "--runs", str(tmp_path / "runs")]) == 92
    assert "ND-92-65" in capfd.readouterr().err


@root
@pytest.mark.parametrize("through", ["switch", "chain"])
def test_a_trial_for_whose_packets_a_path_had_no_room_is_invalid(
    through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its losses are of the machine, and neither of the switch nor of what the path was asked to do."""
    counted = itertools.count(0, 1000)
    monkeypatch.setattr(Network, "unasked", lambda self: next(counted))
    spec = Spec(options={"seconds": 1})
    if through == "switch":
        with SwitchBench(spec) as made:
            seen = made.measure(BRIDGE, 1)
    else:
        if why := DRIVERS["ovs-netdev"].missing():
            pytest.skip(why)
        with ChainLab(checked({"vnfs": {"a": {"kind": "bridge"}}, "chain": ["a"]}, "x")) as lab:
            seen = ChainBench(lab, spec).measure({"functions": 1}, 1)
    assert not seen.valid and seen.why == "the path had no room for 1,000 packets"


def test_what_links_drop_without_being_asked_is_counted_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {way: dict.fromkeys(UNASKED, 2) | {"dropped": 9} for way in WAYS}
    monkeypatch.setattr(Network, "impaired", lambda self: iter([(None, stats), (None, stats)]))
    assert Network(Topology(hosts={}, links=[]), "x").unasked() == 2 * 2 * 2 * len(UNASKED)
