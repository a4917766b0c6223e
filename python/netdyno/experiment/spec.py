"""An experiment as people write it, and the list of trials that it comes to.

format: netdyno-experiment/1
name: body-size
repeat: 5
factors: {profile.groups.web.model.http.path: [/64, /512]}
legs:
  - name: sockets
    profile: http                  # a preset, a file beside this one, or a profile itself
    topology: {hosts: …, links: …}
    duts: {web: {driver: nginx, host: server}}
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from netdyno import config, reading
from netdyno.config import Config
from netdyno.core import models, redaction, secret
from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.lab.dut import DRIVERS
from netdyno.lab.topology import Topology

FORMAT = "netdyno-experiment/1"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_DUT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""It is in the name of a log, and before a dot in targets."""
MOST_VARIANTS, MOST_TRIALS = 4096, 100_000
"""A leg at each combination of levels; each of these, repeated."""
MOST_VALUES = 1_000_000
"""Values in all variants: their profiles, topologies and devices under test."""
LONGEST_LEVEL = 200
"""Characters of a level that results and names of variants have."""


class DutSpec(Config):
    """A device under test and where it stands."""

    driver: str
    """Name of the driver; `netdyno describe` lists them."""
    host: str | None = None
    """A host of the topology; none: this machine."""
    cores: list[int] = Field(default_factory=list)
    """Cores that it may use; default all."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The driver's own settings; every one can be a factor."""

    @model_validator(mode="after")
    def _check_driver(self) -> DutSpec:
        if self.driver not in DRIVERS:
            raise ValueError(f"the driver {self.driver!r} is not known; use one of {', '.join(DRIVERS)}")
        if len(set(self.cores)) < len(self.cores) or any(not 0 <= core < 4096 for core in self.cores):
            raise ValueError("cores are numbers from 0 on, each once")
        at = "options"
        try:
            config.check(DRIVERS[self.driver].Options, self.options, "ND-104-24", at)
        except Error as e:
            raise ValueError(f"{e.at}: {e.what}. {e.fix}".rstrip(". ")) from None
        return self


class TrialSpec(Config):
    """What may be changed of a profile's load and duration."""

    warmup: str | None = None
    """Length of the warm-up, like `2s`."""
    measure: str | None = None
    """Length of the measure phase."""
    drain: str | None = None
    """Longest wait for answers at the end."""
    load: float | None = Field(default=None, gt=0, le=1e9, allow_inf_nan=False)
    """Scales every rate; closed loops: the devices. At most 1e9."""


class LegSpec(Config):
    """One profile in one topology."""

    name: str = Field(pattern=_NAME)
    """Name of the leg in results."""
    profile: str | dict[str, Any]
    """A preset, a file beside this one, or a profile itself."""
    topology: Topology | None = None
    """Hosts and links to make for it; none: this machine as it is."""
    duts: dict[str, DutSpec] = Field(default_factory=dict)
    """Devices under test by name."""
    targets: dict[str, str] = Field(default_factory=dict)
    """URL or DUT (`broker`, `broker.ping`) for targets of the profile; default: the DUT of the same name."""
    trial: TrialSpec = Field(default_factory=TrialSpec)
    """Changes to the profile's load and duration."""
    fleet: str | None = Field(default=None, pattern=_NAME)
    """A fleet that is up, whose hosts generate the load; none: this machine."""

    @model_validator(mode="after")
    def _hosts(self) -> LegSpec:
        hosts = self.topology.hosts if self.topology else {}
        for name, dut in self.duts.items():
            if not _DUT.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is no name of a dut: use letters, digits, - and _")
            if dut.host is not None and dut.host not in hosts:
                raise ValueError(
                    f"the dut {name!r} stands on the host {dut.host!r}, which is not in the topology"
                )
        return self


class Experiment(Config):
    """Legs, repeated, over the levels of factors."""

    schema_: str | None = Field(default=None, alias="$schema")
    """Where this format's schema is; for editors, not read."""
    format: Literal["netdyno-experiment/1"] = "netdyno-experiment/1"
    """Which format this is."""
    name: str = Field(pattern=_NAME)
    """A short name: letters, digits, `-`, `_`, `.`."""
    description: str = ""
    """What it is for."""
    seed: int = 1
    """Of the order of the trials."""
    repeat: int = Field(default=1, ge=1, le=10_000)
    """How often each variant runs."""
    order: Literal["interleaved", "random", "sequential"] = "interleaved"
    """interleaved: each round has every variant once, in random order. random: all shuffled."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Of the intervals over repetitions."""
    factors: dict[str, list[Any]] = Field(default_factory=dict)
    """Path (`profile.…`, `duts.NAME.OPTION`, `trial.load`, `topology.links.0.impair`) to its levels."""
    legs: list[LegSpec] = Field(min_length=1)
    """What is run; each at every combination of levels."""

    @model_validator(mode="after")
    def _names(self) -> Experiment:
        names = [leg.name for leg in self.legs]
        if len(set(names)) < len(names):
            raise ValueError("two legs have the same name")
        return self

    @model_validator(mode="after")
    def _bounded(self) -> Experiment:
        if empty := [path for path, levels in self.factors.items() if not levels]:
            raise ValueError(f"the factor {empty[0]!r} has no levels, so that nothing would be run")
        found = len(self.legs) * math.prod(len(levels) for levels in self.factors.values())
        if found > MOST_VARIANTS or found * self.repeat > MOST_TRIALS:
            what = (
                f"legs and levels come to {_count(found)} variants and {_count(found * self.repeat)} trials"
            )
            raise ValueError(f"{what}; there can be {MOST_VARIANTS:,} and {MOST_TRIALS:,}")
        return self


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**12 else "more than 10¹²"


@dataclass(frozen=True)
class Variant:
    """A leg at one level of each factor: what a leg of the result stands for."""

    name: str
    leg: LegSpec
    profile: dict[str, Any]
    levels: dict[str, Any] = field(default_factory=dict)


def _level_text(path: str, number: int, level: Any) -> Any:
    """A level as results have it, the `number`-th of its factor."""
    if secret.is_secret(path) and isinstance(level, str):
        # a secret is told from another of the same factor by its number
        return f"{redaction.HIDDEN}{number}"
    text = str(level)
    return level if len(text) <= LONGEST_LEVEL else f"{text[:LONGEST_LEVEL]}… ({number})"


def is_experiment(data: Any) -> bool:
    """Whether a document is an experiment; else it is taken for a profile."""
    return isinstance(data, dict) and ("legs" in data or data.get("format") == FORMAT)


def without_thresholds(experiment: Experiment) -> Experiment:
    """The experiment with nothing that its profiles are to keep."""
    legs = [
        leg.model_copy(update={"profile": {k: v for k, v in table(leg.profile).items() if k != "thresholds"}})
        for leg in experiment.legs
    ]
    return experiment.model_copy(update={"legs": legs})


def is_name(text: str) -> bool:
    """Whether an experiment or a leg can be called so."""
    return re.fullmatch(_NAME.strip("^$"), text) is not None


def load(data: Any, at: str) -> Experiment:
    """A checked experiment."""
    return config.check(Experiment, data, "ND-104-24", at)


def variants(experiment: Experiment, folder: Path) -> list[Variant]:
    """Every leg at every combination of levels; profile files are looked for in `folder`."""
    found: list[Variant] = []
    names = list(experiment.factors)
    shown_levels = [
        [_level_text(path, levels.index(level) + 1, level) for level in levels]
        for path, levels in experiment.factors.items()
    ]
    combinations = math.prod(map(len, shown_levels))
    largest = sum(max(map(reading.size, levels), default=0) for levels in experiment.factors.values())
    total = 0
    for leg in experiment.legs:
        profile = resolve_profile(leg.profile, folder)
        rest = leg.model_dump(exclude={"profile"}, by_alias=True)
        total += (reading.size(profile) + reading.size(rest) + largest) * combinations
        if total > MOST_VALUES:
            what = f"all variants together come to more than {MOST_VALUES:,} values"
            raise reading.large(what, f"legs.{leg.name}", "Use fewer levels, or a smaller leg")
        shown_of_all = itertools.product(*shown_levels)
        for combination in itertools.product(*experiment.factors.values()):
            levels = dict(zip(names, combination, strict=True))
            plain = {"profile": copy.deepcopy(profile), **copy.deepcopy(rest)}
            for path, level in levels.items():
                _set(plain, path, copy.deepcopy(level))
            at = f"legs.{leg.name}"
            made = config.check(LegSpec, plain, "ND-104-24", at)
            levels = dict(zip(names, next(shown_of_all), strict=True))
            shown = ",".join(f"{path.rsplit('.', 1)[-1]}={level}" for path, level in levels.items())
            name = f"{leg.name}@{shown}" if levels else leg.name
            if not isinstance(made.profile, dict):
                what = "a profile as a level is an object, and no name of a file or preset"
                raise Error("ND-104-24", what, at="factors.profile", fix="Give each profile a leg of its own")
            found.append(Variant(name, made, made.profile, levels))
    if same := reading.twice([variant.name for variant in found]):
        what = f"two variants are called {same!r}: a level is there twice, or two factors look alike"
        raise Error("ND-104-24", what, at="factors", fix="Write each level once")
    return found


def resolve_profile(profile: str | dict[str, Any], folder: Path) -> dict[str, Any]:
    """A profile itself, a file beside the experiment, or a preset; with the files that it names found."""
    if isinstance(profile, dict):
        return _located(profile, folder)
    if profile.endswith((".json", ".yaml", ".yml")):
        if Path(profile).is_absolute() or ".." in Path(profile).parts:
            what, fix = (
                "it is not beside or below the experiment",
                "Put the profile there, or write it into the leg",
            )
            raise Error("ND-104-24", what, at=profile, fix=fix)
        path = folder / profile
        data = config.read(path)
        if not isinstance(data, dict):
            raise Error("ND-104-04", "it is not a profile", at=profile, fix="A profile is an object")
        return _located(data, path.parent)
    return _located(presets.profile(profile), presets.profiles()[profile].parent)


FILES = (
    ("tls", "ca"),
    ("tls", "cert"),
    ("tls", "key"),
    ("frame", "replay", "file"),
    ("model", "*", "media", "source", "file"),
)
"""Where a group of a profile may name a file; `*`: the one key there is."""


def _located(profile: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A profile whose files are named so that the core finds them; as written, they are beside it."""
    profile = copy.deepcopy(profile)
    groups = profile.get("groups")
    for group in groups if isinstance(groups, list) else ():
        for *path, key in FILES:
            node = group
            for part in path:
                known = node if isinstance(node, dict) else {}
                node = next(iter(known.values()), None) if part == "*" else known.get(part)
            if isinstance(node, dict) and isinstance(node.get(key), str):
                node[key] = str((folder / node[key]).absolute())
    if "data" in profile:
        profile["data"] = _tables(profile["data"], folder)
    secret.located(profile, folder)
    return profile


def _tables(data: Any, folder: Path) -> Any:
    """The `data` of a profile with its files named so that the core finds them."""
    if isinstance(data, str):
        return str((folder / data).absolute())
    if not isinstance(data, dict):
        return data
    found: dict[str, Any] = {}
    for name, source in data.items():
        if isinstance(source, dict) and isinstance(source.get("file"), str):
            found[name] = source | {"file": str((folder / source["file"]).absolute())}
        else:
            found[name] = str((folder / source).absolute()) if isinstance(source, str) else source
    return found


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    """Put a level in its place; members of lists are named by their `name` or number."""
    parts = path.split(".")
    if parts[0] == "duts" and len(parts) == 3:
        parts.insert(2, "options")
    node: Any = document
    for part in parts[:-1]:
        if isinstance(node, list):
            node = next(
                (
                    n
                    for i, n in enumerate(node)
                    if part == str(i) or (isinstance(n, dict) and part == n.get("name"))
                ),
                None,
            )
        elif isinstance(node, dict):
            node = node.setdefault(part, {})
        if node is None:
            break
    if not isinstance(node, dict) or parts[0] not in ("profile", "duts", "trial", "topology"):
        raise Error(
            "ND-104-24",
            f"the factor {path!r} leads nowhere",
            at=f"factors.{path}",
            fix="Use profile.groups.NAME.…, duts.NAME.OPTION, trial.load or topology.links.NUMBER.…",
        )
    node[parts[-1]] = value


def run_id(name: str) -> str:
    """Sorts by time and says what it is: `20260101-120000-iot-mixed-3f2a91`."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "run"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}-{secrets.token_hex(3)}"


def suffix(run: str) -> str:
    """What tells a run from others of its name and second; its namespaces and sockets are called by it."""
    return run.rpartition("-")[2]


def table(value: Any) -> dict[str, Any]:
    """A part of a profile that should be an object; nothing when it is not, for the core to say so."""
    return value if isinstance(value, dict) else {}


def groups(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups of a profile that are what groups should be."""
    listed = profile.get("groups")
    return [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []


def bind_targets(
    leg: LegSpec, profile: Mapping[str, Any], urls: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str, str | None]]:
    """Name, URL and DUT of each target that the leg binds; `urls` are those of the DUTs, by scheme."""
    wanted: dict[str, str] = dict(table(profile.get("targets")))
    for group in groups(profile):
        # a target may be left open in the profile; the group's model says how it is spoken to
        if "://" not in str(group.get("target", "://")) and isinstance(group.get("model"), dict):
            usual = next(iter(models.of_group(group)[0].schemes), None)
            wanted.setdefault(str(group["target"]), f"{usual.name if usual else 'tcp'}://")
    for name, url in wanted.items():
        bound = leg.targets.get(name)
        if bound and "://" in bound:
            yield name, bound, None
            continue
        dut, _, scheme = (bound or name).partition(".")
        if dut not in urls:
            if bound:
                raise Error(
                    "ND-104-26",
                    f"the target {name!r} is bound to {bound!r}, which is no URL and no dut",
                    at=f"legs.{leg.name}.targets.{name}",
                    fix=f"Use a URL or one of: {', '.join(urls) or 'no duts here'}",
                )
            continue
        scheme = (scheme or str(url).partition("://")[0]).lower()
        if scheme not in urls[dut]:
            raise Error(
                "ND-104-26",
                f"the dut {dut!r} does not speak {scheme}",
                at=f"legs.{leg.name}.targets.{name}",
                fix=f"It speaks: {', '.join(urls[dut])}",
            )
        yield name, urls[dut][scheme], dut
    for name in leg.targets.keys() - wanted.keys():
        raise Error(
            "ND-104-26",
            f"the profile has no target {name!r}",
            at=f"legs.{leg.name}.targets.{name}",
            fix=f"It has: {', '.join(wanted) or 'none'}",
        )
