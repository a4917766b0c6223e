"""Studies of switches: which there are, and what each measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from netdyno import config, paths, units
from netdyno.errors import Error
from netdyno.switch import compare
from netdyno.switch.bench import Spec
from netdyno.switch.chain import spec as chains
from netdyno.switch.chain.spec import Chain

FORMAT = "netdyno-switch-study/1"
FOLDER = "switches"


class Quick(config.Config):
    """What is less in a quick study."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Of the workload."""
    repeat: int = Field(default=6, ge=2, le=1000)
    """Trials of each switch or length."""
    switches: list[str] | None = None
    """Fewer switches."""


class SwitchStudy(config.Config):
    """A study: switches that are compared, a chain by its length, or the longest chain for a target."""

    format: Literal["netdyno-switch-study/1"]
    """Which format this is."""
    title: str
    """Heading of its table."""
    paper: str = ""
    """What the paper found; a study without it is measured when it is named."""
    switches: list[str] = Field(default_factory=list, max_length=compare.MOST_ARMS)
    """Switches to compare, as for `netdyno switch compare`."""
    chain: dict[str, Any] | None = None
    """A chain, as in a file of `netdyno chain`; or"""
    target: str | None = None
    """Throughput that the longest chain is to hold: then a chain is searched."""
    workload: str = "iperf3-tcp"
    """Name of the workload."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the workload."""
    path: str | dict[str, Any] | None = None
    """How the link of the client treats packets, as in `netdyno impair`."""
    endpoints: Literal["namespace", "vm"] = "namespace"
    """Client and server: `namespace`, or `vm`."""
    repeat: int = Field(default=10, ge=2, le=1000)
    """Trials of each switch or length."""
    quick: Quick = Field(default_factory=Quick)
    """What is less in a quick study."""

    @field_validator("target")
    @classmethod
    def _rate(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                units.BITRATE.value(value, "target")
            except Error as e:
                raise ValueError(f"{e.what}. {e.fix}") from None
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> SwitchStudy:
        if bool(self.switches) == (self.chain is not None):
            raise ValueError("it has either switches or a chain")
        if self.target is not None and self.chain is None:
            raise ValueError("a target needs a chain")
        if len(self.switches) == 1:
            raise ValueError("one switch alone cannot be compared; it may come twice")
        return self

    def bench(self, quick: bool) -> Spec:
        """The bench of its trials."""
        options = self.options | (self.quick.options if quick else {})
        return Spec(workload=self.workload, options=options, path=self.path, endpoints=self.endpoints)

    def made_chain(self, name: str) -> Chain:
        """Its chain. Raises Error."""
        assert self.chain is not None, "it has a chain"
        return chains.checked({"format": chains.FORMAT, **self.chain}, f"{name}: chain")


def folder() -> Path:
    """Where the studies are."""
    return paths.data("experiments") / FOLDER


def load(path: Path) -> SwitchStudy:
    """A study from a file, with its switches and its chain checked. Raises Error."""
    return checked(config.read(path), str(path))


def checked(plain: Any, at: str) -> SwitchStudy:
    """A study from what a file has."""
    made = config.check(SwitchStudy, plain, "ND-104-84", at)
    for one in (*made.switches, *(made.quick.switches or ())):
        compare.setting(one)
    if made.chain is not None:
        made.made_chain(at)
    return made


def all_studies() -> dict[str, SwitchStudy]:
    """All of them by name: that of their file."""
    return {file.stem: load(file) for file in sorted(folder().glob("*.yaml"))}


def chosen(names: Sequence[str]) -> dict[str, SwitchStudy]:
    """Those that are named; without names the figures of the paper."""
    there = all_studies()
    for name in names:
        if name not in there:
            fix = f"Use one of: {', '.join(there)}"
            raise Error("ND-104-22", f"there is no study {name!r}", at="STUDY", fix=fix)
    return {name: one for name, one in there.items() if name in names or (not names and one.paper)}


def findings(path: Path, data: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """What is wrong with a file, for `netdyno validate`: raised."""
    checked(data, str(path))
    return [], []
