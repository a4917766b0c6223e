"""A path that does not do what is described is told before a run; one that does is measured."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab import effect
from netdyno.lab.effect import Described, Measured, missing
from netdyno.switch.bench import Spec, SwitchBench
from netdyno.switch.chain.effect import probe_paths
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import Chain, checked
from netdyno.switch.driver import DRIVERS

from ..conftest import root


def both(way: dict[str, Any]) -> dict[str, Any]:
    return {"a_to_b": way, "b_to_a": way}


DELAY = both({"delay": {"constant": "40ms"}})
LOSS = both({"loss": {"independent": "20%"}})
RATE = both({"bottleneck": {"rate": "2Mbit/s"}})


@pytest.mark.parametrize(
    ("spec", "seen", "says"),
    [
        (DELAY, Measured(40, (0.081,) * 40), ""),
        (DELAY, Measured(40, (0.3,) * 40), ""),
        (DELAY, Measured(40, ()), ""),
        (DELAY, Measured(40, (0.041,) * 40), "round trips take 41 ms"),
        (LOSS, Measured(60, (0.001,) * 59), ""),
        (LOSS, Measured(60, (0.001,) * 60), "none of 60 probes"),
        (LOSS, Measured(5, (0.001,) * 5), ""),
        (RATE, Measured(40, (0.001,) * 40, 0.12), ""),
        (RATE, Measured(40, (0.001,) * 40, None), ""),
        (RATE, Measured(40, (0.001,) * 40, 0.001), "242 Mbit/s, and 2 are described"),
    ],
)
def test_only_too_little_is_a_fault(spec: dict[str, Any], seen: Measured, says: str) -> None:
    found = missing(Described.of(spec), seen)
    assert says in found and bool(found) == bool(says)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ({"constant": "20ms"}, 0.02),
        ({"uniform": {"from": "10ms", "to": "30ms"}}, 0.02),
        ({"normal": {"mean": "20ms", "deviation": "5ms"}}, 0.02),
        ({"pareto": {"least": "20ms", "shape": 2.5}}, 0.02),
        ({"quantiles": ["10ms", "20ms", "90ms"]}, 0.02),
    ],
)
def test_each_kind_of_delay_has_a_usual_one(delay: dict[str, Any], seconds: float) -> None:
    assert Described.of(both({"delay": delay})).delay == pytest.approx(2 * seconds)


def test_what_probes_cannot_see_is_said() -> None:
    rare = Described.of(both({"loss": {"independent": "0.1%"}, "corrupt": "1%"}))
    assert rare.more == ("loss", "corrupt") and not rare.seen
    said = effect.probed("the path", [both({"corrupt": "1%"})], lambda _: pytest.fail("probed"), "x")
    assert "nothing that probes can see" in said
    assert not effect.probed("the path", [{}], lambda _: pytest.fail("probed"), "x")
    changing = effect.probed(
        "the path", [{**DELAY, "timeline": {"steps": [{"at": "1s"}]}}], lambda _: pytest.fail("probed"), "x"
    )
    assert "changes with time" in changing


@root
@pytest.mark.slow
@pytest.mark.parametrize("spec", [DELAY, LOSS, RATE])
def test_a_path_that_was_made_whole_ends_a_comparison(spec: dict[str, Any]) -> None:
    said: list[str] = []
    with SwitchBench(Spec(options={"seconds": 1}, path=spec), note=said.append) as bench:
        assert bench.network and bench.network.links
        (link,) = bench.network.links.all
        bench.network.links.set(link, {})
        with pytest.raises(Error) as wrong:
            bench.measure({"switch": "linux-bridge"}, 1)
        assert wrong.value.code == effect.CODE and wrong.value.at == "--path"
        bench.network.links.set(link, spec)
        bench.measure({"switch": "linux-bridge"}, 2)
    (line,) = said
    assert "does what is described" in line


def wan(**more: Any) -> Chain:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    plain = {"vnfs": {"a": {"kind": "bridge"}}, "chain": ["a"], **more}
    return checked(plain, "x")


@root
@pytest.mark.drawn
def test_each_path_of_a_chain_is_probed_and_one_that_was_made_whole_is_named() -> None:
    vxlan = {"kind": "vxlan", "key": 7}
    paths = {"one": {"path": DELAY, "tunnel": vxlan}, "two": {"path": DELAY}, "three": {"path": "geo"}}
    said: list[str] = []
    with ChainLab(wan(wan={"paths": paths}), {"client": LOSS}) as lab:
        probe_paths(lab, said.append, "x")
        assert [one.partition(" does")[0] for one in said] == [
            "the path one",
            "the path two",
            "the path three",
            "the client's path",
        ]
        links = lab.network.impaired_links()
        assert links and lab.network.links
        client = lab.network.links.client
        for end, name in (("switch.wan-two", "the path two"), ("client.eth0", "the client's path")):
            (link,) = (one["link"] for one in links["links"] if end in (one["a"], one["b"]))
            client.call("impair.set", link=link, spec={})
            with pytest.raises(Error) as wrong:
                probe_paths(lab, said.append, "x")
            assert wrong.value.code == effect.CODE and f"{name} has no effect" in wrong.value.what
            client.call("impair.set", link=link, spec=DELAY if "wan" in end else LOSS)


@root
@pytest.mark.drawn
def test_the_path_of_a_tunnel_is_probed_through_the_chain() -> None:
    said: list[str] = []
    with ChainLab(wan(tunnel={"kind": "vxlan", "path": DELAY})) as lab:
        probe_paths(lab, said.append, "x")
        assert said and "the path of the tunnel does" in said[0]
        assert lab.network.links
        (link,) = lab.network.links.all
        lab.network.links.set(link, {})
        with pytest.raises(Error) as wrong:
            probe_paths(lab, said.append, "x")
        assert wrong.value.code == effect.CODE
