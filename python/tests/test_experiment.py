from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.experiment import presets, schedule, spec, validation
from netdyno.experiment.spec import bind_targets, load, variants

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
    plan = [(v.name, n) for v, n in schedule.order(wanted, found)]
    assert len(plan) == len(set(plan)) == 15
    assert plan == [(v.name, n) for v, n in schedule.order(wanted, found)]
    if order == "interleaved":
        for block in range(5):
            assert len({name for name, _ in plan[3 * block : 3 * block + 3]}) == 3
        other = load(document(repeat=5, seed=2, factors={"trial.load": [1, 2, 3]}), "e")
        assert plan != [(v.name, n) for v, n in schedule.order(other, found)]


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
    first = spec.run_id("IoT mixed!")
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


def test_a_factor_within_another_changes_its_own_variants_alone() -> None:
    document = {
        "format": "netdyno-experiment/1", "name": "x",
        "legs": [{"name": "a", "profile": "http"}],
        "factors": {
            "profile.groups.web.model": [{"http": {"method": "GET", "path": "/1"}}],
            "profile.groups.web.model.http.path": ["/1", "/2"],
        },
    }  # fmt: skip
    found = variants(load(document, "x"), Path())
    assert [one.profile["groups"][0]["model"]["http"]["path"] for one in found] == ["/1", "/2"]


MANY_ADDRESSES = {
    "hosts": {"gen": {"role": "generator"}, "srv": {"role": "dut"}},
    "links": [
        {
            "a": {
                "host": "gen",
                "name": "g0",
                "addresses": [f"10.{n >> 8}.{n & 255}.1/24" for n in range(8000)],
            },
            "b": {"host": "srv", "name": "s0", "addresses": ["10.0.0.2/24"]},
        }
    ],
}


@pytest.mark.parametrize(
    ("more", "factors"),
    [
        ({"description": "x" * 1_900_000}, {"profile.seed": list(range(4096))}),
        (
            {"topology": MANY_ADDRESSES},
            {"profile.seed": list(range(4096))},
        ),
        ({}, {"profile.name": ["a" * 900_000, "b" * 900_000], "profile.seed": list(range(1024))}),
    ],
)
def test_variants_that_come_to_too_much_are_refused_at_once(
    more: dict[str, Any], factors: dict[str, list[Any]]
) -> None:
    profile = {"name": "x", "seed": 1} | {k: v for k, v in more.items() if k == "description"}
    leg = {"name": "a", "profile": profile} | {k: v for k, v in more.items() if k == "topology"}
    document = {"format": "netdyno-experiment/1", "name": "x", "legs": [leg], "factors": factors}
    with pytest.raises(Error) as wrong:
        variants(load(document, "x"), Path())
    assert wrong.value.code == "ND-104-32"


def test_a_long_level_is_shown_short() -> None:
    long = ["a" * 300 + "1", "a" * 300 + "2"]
    profile = {"name": "x", "description": "y"}
    document = {
        "format": "netdyno-experiment/1", "name": "x",
        "legs": [{"name": "a", "profile": profile}], "factors": {"profile.description": long},
    }  # fmt: skip
    found = variants(load(document, "x"), Path())
    assert [one.profile["description"] for one in found] == long
    assert [one.name.removeprefix("a@description=") for one in found] == [
        f"{'a' * 200}… ({n})" for n in (1, 2)
    ]


def test_a_factor_into_a_list_of_texts_leads_nowhere() -> None:
    links = [
        {"a": {"host": "x", "name": "x0", "addresses": ["10.0.0.1/24"]}, "b": {"host": "y", "name": "y0"}}
    ]
    document = {
        "format": "netdyno-experiment/1", "name": "x",
        "legs": [{"name": "a", "profile": "http", "topology": {"hosts": {"x": {}, "y": {}}, "links": links}}],
        "factors": {"topology.links.0.a.addresses.0.x": [1]},
    }  # fmt: skip
    with pytest.raises(Error) as wrong:
        variants(load(document, "x"), Path())
    assert wrong.value.code == "ND-104-24"


LEVELS = list(range(9))


@pytest.mark.parametrize(
    "more",
    [
        {"factors": {f"profile.x{n}": LEVELS for n in range(9)}, "repeat": 10_000},
        {"factors": {"trial.load": list(range(1, 5000))}},
        {"factors": {"trial.load": list(range(1, 100))}, "repeat": 10_000},
        {"factors": {f"profile.x{n}": list(range(1000)) for n in range(1000)}},
    ],
    ids=["9⁹ × 10,000", "levels", "repetitions", "beyond any number"],
)
def test_more_trials_than_anybody_waits_for_are_refused_before_they_are_made(more: dict[str, Any]) -> None:
    with pytest.raises(Error, match=r"there can be 4,096 and 100,000"):
        load(document(**more), "e")


def test_the_profiles_of_all_variants_are_bounded_together() -> None:
    large = PROFILE | {"x": [0] * 40_000}
    legs = [{"name": "a", "profile": large}]
    factors = {"trial.load": list(range(1, 30))}
    with pytest.raises(Error, match="ND-104-32"):
        variants(load({"name": "e", "legs": legs, "factors": factors}, "e"), Path())


def test_a_factor_has_levels_and_each_once() -> None:
    with pytest.raises(Error, match="no levels"):
        load(document(factors={"trial.load": []}), "e")
    with pytest.raises(Error, match="two variants are called"):
        variants(load(document(factors={"trial.load": [1, 1]}), "e"), Path())


@pytest.mark.parametrize("profile", ["/etc/passwd.json", "../p.json", "a/../../p.yaml", "a/../b.json"])
def test_a_profile_is_beside_or_below_the_experiment(profile: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(Error, match="not beside or below"):
        spec.resolve_profile(profile, tmp_path / "here")


def dut(**more: Any) -> dict[str, Any]:
    return {
        "name": "e",
        "legs": [{"name": "a", "profile": PROFILE, "duts": {"web": {"driver": "nginx", **more}}}],
    }


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"options": {"port": 70_000}}, "options: port"),
        ({"options": {"prot": 80}}, "Did you mean 'port'"),
        ({"options": {"port": "80;\ninclude /etc/shadow"}}, "options: port"),
        ({"options": {"worker_processes": "1; load_module x.so"}}, "options: worker_processes"),
        ({"options": {"sizes": [1 << 40]}}, "options: sizes"),
        ({"options": {"sizes": ["../../x"]}}, "options: sizes"),
        ({"options": {"sizes": [-1]}}, "options: sizes"),
        ({"options": {"sizes": [1] * 65}}, "options: sizes"),
        ({"cores": [0, 0]}, "each once"),
        ({"cores": [-1]}, "each once"),
    ],
)
def test_what_a_dut_is_told_is_checked_with_the_experiment(more: dict[str, Any], why: str) -> None:
    with pytest.raises(Error) as wrong:
        load(dut(**more), "e")
    assert wrong.value.code == "ND-104-24"
    assert why in str(wrong.value)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a.b", "-x", "a\n", ".."])
def test_the_name_of_a_dut_is_that_of_a_file(name: str) -> None:
    legs = [{"name": "a", "profile": PROFILE, "duts": {name: {"driver": "nginx"}}}]
    with pytest.raises(Error, match="no name of a dut"):
        load({"name": "e", "legs": legs}, "e")


TOPOLOGY = {
    "hosts": {"gen": {"role": "generator"}, "srv": {}, "bare": {}},
    "links": [
        {
            "a": {"host": "gen", "addresses": ["10.0.0.1/24"]},
            "b": {"host": "srv", "addresses": ["10.0.0.2/24"]},
        }
    ],
}


@pytest.mark.parametrize(
    ("duts", "code", "at"),
    [
        (
            {"web": {"driver": "nginx", "cores": [4000], "host": "srv"}},
            "ND-104-05",
            "legs.a.duts.web.cores",
        ),
        # the generator's 127.0.0.1 is another one
        ({"web": {"driver": "nginx"}}, "ND-104-07", "legs.a.duts.web.host"),
        ({"web": {"driver": "nginx", "host": "bare"}}, "ND-104-29", "legs.a.duts.web.host"),
        (
            {"web": {"driver": "nginx", "host": "srv"}, "two": {"driver": "nginx", "host": "srv"}},
            "ND-104-07",
            "legs.a.duts.two.options",
        ),
        (
            {
                "web": {"driver": "nginx", "options": {"port": 7}, "host": "srv"},
                "r": {"driver": "reflector", "host": "srv"},
            },
            "ND-104-07",
            "legs.a.duts.r.options",
        ),
        ({"web": {"driver": "nginx", "host": "srv"}, "two": {"driver": "nginx", "host": "gen"}}, None, None),
    ],
)
def test_validate_finds_what_a_run_would_only_find_later(
    duts: dict[str, Any], code: str | None, at: str | None
) -> None:
    legs = [{"name": "a", "profile": PROFILE, "topology": TOPOLOGY, "duts": duts}]
    found = list(validation.of_duts(variants(load({"name": "e", "legs": legs}, "e"), Path())))
    assert [(one["code"], one["at"]) for one in found] == ([(code, at)] if code else [])


def test_all_variants_are_validated_by_one_program(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    run = validation.subprocess.run

    def counted(*args: Any, **options: Any) -> Any:
        started.append(len(options["input"].splitlines()))
        return run(*args, **options)

    monkeypatch.setattr(validation.subprocess, "run", counted)
    levels = {"profile.groups.0.devices": list(range(1, 65)), "trial.load": [1 + i / 100 for i in range(32)]}
    wanted = load({"name": "e", "legs": [{"name": "a", "profile": PROFILE}], "factors": levels}, "e")
    validation.check(wanted, Path())
    # the load is the trial's: there are as many profiles as numbers of devices
    assert started == [64]


def test_a_script_of_another_load_generator_is_to_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.js").touch()
    told = presets.unknown("load.js", presets.names())
    assert (told.what, "netdyno import load.js" in told.fix) == ("load.js is a k6 script", True)
    assert "no preset" in presets.unknown("other.js", presets.names()).what
