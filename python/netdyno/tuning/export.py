"""A proven setting for the tools that others keep their machines with: sysctl.d, TuneD, Ansible; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno import escape, quantities
from netdyno.core import redaction
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.stats.winner import Winner
from netdyno.tuning import access
from netdyno.tuning.registry import Registry, owner_of

Now = Callable[[str], Mapping[str, Value]]
"""The numbers of a kernel parameter that has several, by their places, as they are on this machine."""


@dataclass(frozen=True)
class Provenance:
    """Where a setting comes from."""

    study: str
    bench: str
    machine: str
    """Kernel, processor and cores that it was measured on."""
    finished: str
    claims: tuple[str, ...]
    """Each metric that was proven: its change and interval."""
    objection: str = ""
    """Why it is not proven; empty where it is."""

    @property
    def label(self) -> str:
        """The study in a value that the other tool reads: it would fill in variables there, and run some."""
        return re.sub(r"[^\w.+-]", "_", self.study)

    def lines(self) -> list[str]:
        """As comments, without their sign: each one line, whatever the study's file says."""
        state = f"NOT PROVEN: {self.objection}" if self.objection else "proven against the baseline"
        said = [
            f"netdyno study {self.study}, {state}",
            *self.claims,
            f"measured with: {self.bench}",
            f"measured on: {self.machine or 'an unknown machine'}, {self.finished}",
        ]
        return [_line(text) for text in said]


@dataclass(frozen=True)
class Exported:
    """Kernel parameters as files name them, and what such a file cannot set."""

    parameters: Mapping[str, str]
    left_out: Mapping[str, str]
    """Parameters and why they are not exported."""


def provenance(study: Mapping[str, Any], won: Winner) -> Provenance:
    """Of the winner of a study."""
    found, metrics = study["result"], []
    if study["kind"] == "search":
        for proof in found["proofs"]:
            if proof["objective"] in won.metric.split(", "):
                metrics = proof["comparison"]["metrics"]
    else:
        metrics = found["metrics"]
    level = found.get("level") or study["plan"].get("level") or 0.05
    shown = [one for one in metrics if one["verdict"] in ("better", "worse")]
    machine = study.get("machine") or {}
    words = f"Linux {machine['kernel']}, {machine['cpu']}, {machine['cores']} cores" if machine else ""
    return Provenance(
        str(study["name"]), str(study["bench"]), words, str(study["finished"]),
        tuple(_claim(one, won.pairs, float(level)) for one in shown), won.objection,
    )  # fmt: skip


def _claim(one: Mapping[str, Any], pairs: int, level: float) -> str:
    effect = one["effect"]
    ends = effect["interval"] or (float("nan"), float("nan"))

    def words(value: float) -> str:
        return quantities.difference(value) if effect["absolute"] else f"{value:+.1%}"

    name = one["metric"]["name"]
    around = f"interval {words(ends[0])} to {words(ends[1])}"
    return (
        f"{name} {one['verdict']}: {words(effect['change'])}, {around}, {pairs} pairs, level {level:g} in all"
    )


def _line(text: object) -> str:
    """On one line, with no secret of a command."""
    return escape.visible(redaction.command(" ".join(str(text).split())))


def parameters(known: Registry, setting: Mapping[str, Any], now: Now) -> Exported:
    """The sysctls of a setting; numbers of one file are put together, with those that it does not change.

    The setting may come from anybody: what the parameter does not take is refused, as when it is applied.
    """
    found: dict[str, dict[str, Value]] = {}
    left_out: dict[str, str] = {}
    for name, value in known.read(setting).items():
        target, key = access.target(known.find(name).access, owner_of(name))
        if target.kind != "sysctl":
            kept = ("it is of a device", "`netdyno tune apply --keep` writes rules of udev")
            left_out[f"{name} = {value}"] = ": ".join(access.NOT_KEPT.get(target.kind, kept))
            continue
        found.setdefault(target.path, {})[key] = value
    whole = {path: {**(now(path) if "" not in values else {}), **values} for path, values in found.items()}
    texts = {path: " ".join(str(values[key]) for key in sorted(values)) for path, values in whole.items()}
    return Exported(texts, left_out)


def sysctl(exported: Exported, of: Provenance) -> str:
    """A file of /etc/sysctl.d."""
    head = _comments(exported, of)
    return "\n".join([*head, *(f"{n} = {v}" for n, v in exported.parameters.items())]) + "\n"


def tuned(exported: Exported, of: Provenance) -> str:
    """The tuned.conf of a TuneD profile; it includes no other."""
    lines = [
        *_comments(exported, of),
        "[main]",
        f"summary=Network parameters of netdyno study {of.label}",
        "",
    ]
    lines += ["[sysctl]", *(f"{name}={value}" for name, value in exported.parameters.items())]
    return "\n".join(lines) + "\n"


def ansible(exported: Exported, of: Provenance) -> str:
    """A list of Ansible tasks, for the module ansible.posix.sysctl."""
    lines = [*_comments(exported, of), "---"]
    for name, value in exported.parameters.items():
        lines += [
            f"- name: {name} by netdyno study {of.label}", "  ansible.posix.sysctl:", f"    name: {name}",
            f'    value: "{value}"', "    sysctl_file: /etc/sysctl.d/90-netdyno.conf", "    state: present",
            "    reload: true", "  become: true",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Callable[[Exported, Provenance], str]] = {
    "sysctl": sysctl, "tuned": tuned, "ansible": ansible
}  # fmt: skip


def text(exported: Exported, of: Provenance, form: str) -> str:
    """In one of the formats; refuses a setting of which nothing can be exported."""
    if not exported.parameters:
        why = "; ".join(f"{name}: {said}" for name, said in exported.left_out.items())
        fix = "Apply it with `netdyno tune apply STUDY --keep`"
        raise Error("ND-104-54", f"no kernel parameter of it can be exported: {why}", at=of.study, fix=fix)
    return FORMATS[form](exported, of)


def _comments(exported: Exported, of: Provenance) -> Sequence[str]:
    left = [_line(f"not exported: {name}: {why}") for name, why in exported.left_out.items()]
    return [f"# {line}" for line in (*of.lines(), *left)]
