from pathlib import Path
from typing import Any

import pytest

from netdyno import experiment, presets
from netdyno.errors import Error
from netdyno.experiment import bind_targets, load, schedule, variants

PROFILE: dict[str, Any] = {
    "name": "p",
    "targets": {"web": "http://127.0.0.1", "host": "ping://127.0.0.1"},
    "groups": [{"name": "web", "target": "web", "model": {"http": {"path": "/"}}}],
}
URLS = {"web": {"http": "http://10.0.0.2:80", "ping": "ping://10.0.0.2"}}


def document(**more: Any) -> dict[str, Any]:
    return {"name": "e", "legs": [{"name": "a", "profile": PROFILE}], **more}


def test_levels_are_put_in_their_place() -> None:
    wanted = load(
        document(factors={"profile.groups.web.model.http.path": ["/64", "/512"], "trial.load": [1, 2]}), "e"
    )
    found = variants(wanted, Path())
    assert len(found) == 4
    assert {v.profile["groups"][0]["model"]["http"]["path"] for v in found} == {"/64", "/512"}
    assert {v.leg.trial.load for v in found} == {1, 2}
    assert PROFILE["groups"][0]["model"]["http"]["path"] == "/"
    assert len({v.name for v in found}) == 4


def test_factors_of_duts() -> None:
    legs = [{"name": "a", "profile": PROFILE, "duts": {"web": {"driver": "nginx"}}}]
    wanted = load({"name": "e", "legs": legs, "factors": {"duts.web.worker_processes": [1, 2]}}, "e")
    assert [v.leg.duts["web"].options["worker_processes"] for v in variants(wanted, Path())] == [1, 2]


@pytest.mark.parametrize("path", ["profile.groups.nobody.model", "elsewhere.x"])
def test_a_factor_that_leads_nowhere(path: str) -> None:
    with pytest.raises(Error) as wrong:
        variants(load(document(factors={path: [1]}), "e"), Path())
    assert "leads nowhere" in wrong.value.what


@pytest.mark.parametrize("order", ["interleaved", "random", "sequential"])
def test_every_order_has_every_trial_once_and_repeats_itself(order: str) -> None:
    wanted = load(document(repeat=5, order=order, factors={"trial.load": [1, 2, 3]}), "e")
    found = variants(wanted, Path())
    plan = [(v.name, n) for v, n in schedule(wanted, found)]
    assert len(plan) == len(set(plan)) == 15
    assert plan == [(v.name, n) for v, n in schedule(wanted, found)]
    if order == "interleaved":
        for block in range(5):
            assert len({name for name, _ in plan[3 * block : 3 * block + 3]}) == 3
        other = load(document(repeat=5, seed=2, factors={"trial.load": [1, 2, 3]}), "e")
        assert plan != [(v.name, n) for v, n in schedule(other, found)]


def test_targets_are_bound_by_name_and_by_hand() -> None:
    leg = load(document(), "e").legs[0].model_copy(update={"targets": {"host": "web.ping"}})
    bound = {name: (url, dut) for name, url, dut in bind_targets(leg, PROFILE, URLS)}
    assert bound == {"web": ("http://10.0.0.2:80", "web"), "host": ("ping://10.0.0.2", "web")}
    leg = leg.model_copy(update={"targets": {"web": "http://192.0.2.1"}})
    assert ("web", "http://192.0.2.1", None) in list(bind_targets(leg, PROFILE, URLS))


@pytest.mark.parametrize("targets", [{"nobody": "web"}, {"web": "nobody"}, {"web": "web.mqtt"}])
def test_wrong_targets(targets: dict[str, str]) -> None:
    leg = load(document(), "e").legs[0].model_copy(update={"targets": targets})
    with pytest.raises(Error) as wrong:
        list(bind_targets(leg, PROFILE, URLS))
    assert wrong.value.code == "ND-104-26"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"legs": []}, "at least 1"),
        ({"legs": [{"name": "a", "profile": "x"}] * 2}, "same name"),
        ({"legs": [{"name": "a", "profile": "x", "duts": {"d": {"driver": "apache"}}}]}, "not known"),
        (
            {"legs": [{"name": "a", "profile": "x", "duts": {"d": {"driver": "nginx", "host": "h"}}}]},
            "not in",
        ),
        ({"repeat": 0}, "greater"),
        ({"order": "backwards"}, "interleaved"),
        ({"repeats": 3}, "unknown key"),
        ({"name": "../evil"}, "match"),
    ],
)
def test_wrong_experiments(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Error) as wrong:
        load(document() | change, "e.yaml")
    assert why in str(wrong.value)
    assert wrong.value.exit_code == 104


def test_ids_sort_by_time_and_say_what_they_are() -> None:
    first = experiment.run_id("IoT mixed!")
    assert first[:15].replace("-", "").isdigit()
    assert "-iot-mixed-" in first


def test_unknown_preset_is_met_with_a_suggestion() -> None:
    with pytest.raises(Error) as wrong:
        presets.profile("mqt-t4")
    assert "mqtt-t4" in wrong.value.fix


def test_presets_are_there() -> None:
    assert {"iot-mixed", "mqtt-t4", "http", "ping", "stream-64b"} <= presets.profiles().keys()
    for name, path in presets.profiles().items():
        assert presets.profile(name)["name"] == name == path.stem
    for name in presets.experiments():
        path = presets.experiment(name)
        from netdyno import config

        variants(load(config.read(path), str(path)), path.parent)
