"""The values that a study found: a table, lines of sysctl.conf, and the command that applies them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from netdyno import config, paths
from netdyno.report.study import ProposedSetting, Study
from netdyno.report.table import Column, Table, data
from netdyno.report.text import Data, M, Msg
from netdyno.stats.winner import Winner, winners


def winning(study: Study) -> tuple[list[ProposedSetting], dict[str, dict[str, str]]]:
    """What the page shows, and the texts that it copies: name → language → text; nothing of what is worse."""
    shown: list[ProposedSetting] = []
    copies: dict[str, dict[str, str]] = {}
    traded = study["kind"] == "compare"
    found = [o for o in winners(study) if o.setting and (not o.refuted or (traded and o.metric))]
    for number, one in enumerate(found):
        name = f"winner-{number}"
        option = ["--best", one.metric] if len(found) > 1 else []
        shown.append(ProposedSetting(name, _title(one), one.proven, _about(one), _table(study, one)))
        state = "proven" if one.proven else f"not proven: {one.why}"
        head = f"{study['name']}, {one.metric or 'second setting'}, {state}"
        copies[f"{name}-sysctl"] = {"en": sysctl_conf(head, one.setting, _starts(study))}
        unproven = ["--unproven"] if one.objection else []
        unproven += ["--contradicted"] if one.proven and one.contradicted else []
        command = ["sudo", "netdyno", "tune", "apply", str(study["name"]), *option, *unproven]
        copies[f"{name}-command"] = {"en": shlex.join(command) + "\n"}
    return shown, copies


def proposed(name: str) -> tuple[list[ProposedSetting], dict[str, dict[str, str]]]:
    """The same of a known setting that is proposed; nothing where that is to change nothing."""
    path = paths.data("tunables") / "settings" / f"{name}.yaml"
    if not path.is_file():
        return [], {}
    values = config.read(path)["values"]
    table = Table(M("Proposed values"), [Column(M("Parameter"), numeric=False), Column(M("Value"))])
    for parameter, value in values.items():
        table.add(data(parameter), data(str(value)))
    about = M("Expected from measurements elsewhere: prove it here with netdyno tune compare.")
    one = ProposedSetting("winner-0", M("Proposed: {setting}", setting=Data(name)), False, about, table)
    return [one], {
        "winner-0-sysctl": {"en": sysctl_conf(f"{name}, proposed", values, {})},
        "winner-0-command": {"en": f"sudo netdyno tune apply {shlex.quote(name)}\n"},
    }


def _title(one: Winner) -> Msg:
    return M("Best for {metric}", metric=Data(one.metric)) if one.metric else M("The second setting")


def _about(one: Winner) -> Msg:
    if one.proven and one.simulated:
        return M(
            "Proven over {n} pairs of trials on a simulation, which says nothing of a machine.",
            n=str(one.pairs),
        )
    if one.proven:
        return M("Proven over {n} pairs of trials beside the baseline.", n=str(one.pairs))
    return M("Not proven: apply it only to try it.")


def _table(study: Study, one: Winner) -> Table:
    table = Table(
        M("Winning values"),
        [Column(M("Parameter"), numeric=False), Column(M("Baseline")), Column(M("Value"))],
    )
    starts = _starts(study)
    for name, value in one.setting.items():
        before = starts.get(name)
        table.add(data(name), data(str(before) if before is not None else "–"), data(str(value)))
    # of a comparison with the baseline it is not known what that was
    return table.keep(True, any(starts.get(name) is not None for name in one.setting), True)


def _starts(study: Study) -> dict[str, Any]:
    """The baseline's values, as far as the study says."""
    starts = {axis["name"]: axis["start"] for axis in study.get("tunables") or ()}
    base = study["result"].get("a")
    return starts | (dict(base["setting"]) if study["kind"] == "compare" and base else {})


def sysctl_conf(head: str, setting: Mapping[str, Any], starts: Mapping[str, Any]) -> str:
    """Kernel parameters as sysctl.conf has them; what that file cannot say stands there as a comment."""
    lines, known = [f"# netdyno: {head}"], parameters()
    files: dict[str, dict[int, Any]] = {}
    for name, value in setting.items():
        about = known.get(name, {})
        if name.startswith("dev."):
            lines.append(f"# {name} = {value} belongs to a device: netdyno tune apply sets it")
        elif about.get("part") is None:
            lines.append(f"{about.get('path', name)} = {value}")
        else:
            files.setdefault(about["path"], {})[about["part"]] = value
    for path, values in files.items():
        lines += _whole_file(path, values, known, starts)
    return "\n".join(lines) + "\n"


def _whole_file(
    path: str, values: Mapping[int, Any], known: Mapping[str, Mapping[str, Any]], starts: Mapping[str, Any]
) -> Sequence[str]:
    """A file of several numbers: those not set are as in the baseline, or as Linux has them."""
    parts = {about["part"]: name for name, about in known.items() if about.get("path") == path}
    numbers = []
    for part in sorted(parts):
        name = parts[part]
        value = values.get(part, starts.get(name, known[name].get("default")))
        if value is None:
            said = ", ".join(f"{parts[p]} = {v}" for p, v in values.items())
            return [f"# {said}: the other numbers of {path} differ from machine to machine"]
        numbers.append(str(value))
    return [f"{path} = {' '.join(numbers)}"]


@cache
def parameters() -> dict[str, Mapping[str, Any]]:
    """Kernel parameters as `tunables/` describes them: path, part and default by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for scope in ("namespace", "global"):
        listed = config.read(paths.data("tunables") / f"{scope}.yaml")
        found |= {name: about for name, about in listed.items() if isinstance(about, Mapping)}
    return found
