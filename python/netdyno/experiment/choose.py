"""What is to be run, from what a user says: URLs, a file, a preset, and what is changed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.errors import Error
from netdyno.experiment import limits, presets, quick, spec
from netdyno.experiment.spec import Experiment


@dataclass(frozen=True)
class ChosenExperiment:
    """The experiment to run, and its folder."""

    experiment: Experiment
    folder: Path
    """What its files are relative to."""
    place: Callable[[str, str], str]
    """From a leg and a place in its profile to what the user wrote."""


def choose(what: Sequence[str], options: quick.UrlOptions | None = None) -> ChosenExperiment:
    """What is meant by URLs, or by the name of a file or preset."""
    options = options or quick.UrlOptions()
    for one in what:
        if hint := quick.no_url(one):
            raise hint
    if any(quick.is_url(one) for one in what):
        if others := [one for one in what if not quick.is_url(one)]:
            raise Error(
                "ND-104-22", "URLs and files cannot be run together", at=others[0], fix="Run one at a time"
            )
        return ChosenExperiment(
            _wrap(quick.profile(what, options)), Path(), lambda _, at: quick.option_of(what, at)
        )
    if options != quick.UrlOptions():
        raise Error(
            "ND-104-07",
            "--devices, --rate and their like are for URLs; a profile says them itself",
            at=what[0],
            fix="Use --load, --duration or --target, or edit the profile",
        )
    if len(what) > 1:
        raise Error("ND-104-22", "only one file or preset can be run at a time", at=" ".join(what))
    name = what[0]
    path = Path(name)
    if presets.is_word(name):
        found = presets.path(name)
        if found is None:
            raise presets.unknown(name, presets.names())
        path = found
    return document(config.read(path), name, path.parent)


def document(data: Any, name: str, folder: Path) -> ChosenExperiment:
    """A profile or an experiment that was read; the files that it names are relative to a folder."""
    if spec.is_experiment(data):
        loaded = spec.load(data, name)
        return ChosenExperiment(loaded, folder, lambda leg, at: f"{name}: legs.{leg}.profile.{at}")
    if not isinstance(data, dict):
        raise neither(name)
    return ChosenExperiment(_wrap(data), folder, lambda _, at: f"{name}: {at}" if at else name)


def neither(at: str) -> Error:
    """A document with no keys at all."""
    fix = "`netdyno init` writes a profile to start from"
    return Error("ND-104-04", "it is neither a profile nor an experiment: it has no keys", at=at, fix=fix)


def _wrap(profile: dict[str, Any]) -> Experiment:
    """A profile as an experiment of one leg."""
    transport = profile.get("transport")
    leg = next(iter(transport)) if isinstance(transport, dict) and transport else "sockets"
    name = str(profile.get("name") or "profile")
    if not spec.is_name(name):
        # what is wrong with it is for the core to say, as with all else in a profile
        name = "profile"
    return spec.load({"name": name, "legs": [{"name": leg, "profile": profile}]}, name)


def renamed(chosen: ChosenExperiment, name: str | None, at: str = "--name") -> ChosenExperiment:
    """The same under another name."""
    if not name:
        return chosen
    if not spec.is_name(name):
        fix = "Use up to 64 letters, digits, `_`, `.` and `-`, like before-upgrade"
        raise Error("ND-104-04", f"{name[:80]!r} is not a name", at=at, fix=fix)
    return replace(chosen, experiment=chosen.experiment.model_copy(update={"name": name}))


def adjust(
    chosen: ChosenExperiment,
    trial: Mapping[str, Any],
    targets: Mapping[str, str],
    repeat: int | None,
    capture: Mapping[str, str] | None = None,
    thresholds: Sequence[str] = (),
    port: Mapping[str, Any] | None = None,
) -> Experiment:
    """The experiment with what is changed of it. `port`: the DPDK port that its devices run over."""
    plain = chosen.experiment.model_dump(by_alias=True, exclude_none=True)
    if repeat:
        plain["repeat"] = repeat
    for leg in plain["legs"]:
        leg["trial"] = leg.get("trial", {}) | {k: v for k, v in trial.items() if v is not None}
        profile = dict(spec.resolve_profile(leg["profile"], chosen.folder))
        if capture is not None:
            profile["capture"] = spec.table(profile.get("capture")) | dict(capture)
        if port is not None:
            profile["transport"] = {"dpdk": {"ports": [dict(port)]}}
            leg["name"] = "dpdk" if leg["name"] == "sockets" else leg["name"]
        if thresholds:
            listed = profile.get("thresholds")
            before = listed if isinstance(listed, list) else []
            profile["thresholds"] = [*before, *limits.thresholds(thresholds, profile)]
        leg["profile"] = profile
        named = spec.table(profile.get("targets"))
        known = {*named, *(group.get("target") for group in spec.groups(profile))}
        if unknown := targets.keys() - known:
            names = ", ".join(sorted(map(str, named))) or "none"
            what = f"the profile has no target {sorted(unknown)[0]!r}"
            raise Error("ND-104-26", what, at="--target", fix=f"It has: {names}")
        leg["targets"] = leg.get("targets", {}) | dict(targets)
    return spec.load(plain, chosen.experiment.name)
