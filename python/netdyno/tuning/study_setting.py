"""The setting that a study found, to be applied: by the study's name, its document, or its run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdyno import reading
from netdyno.errors import Error
from netdyno.experiment import study as studies
from netdyno.experiment.record import folder
from netdyno.stats.winner import KINDS, Winner, winners

_KEYS = {"format", "kind", "name", "result", "trials"}


def study(name: str) -> dict[str, Any] | None:
    """The study of that name or in that file; None where it is something else, such as a known setting."""
    path = Path(name)
    if path.is_dir():
        path = path / "study.json"
        return studies.read(str(path)) if path.is_file() else None
    if path.suffix == ".json":
        return studies.read(name) if path.is_file() and _is_study(path) else None
    if path.name != name or not (folder() / f"{name}.json").is_file():
        return None
    return studies.read(name)


def _is_study(path: Path) -> bool:
    try:
        made = reading.record(path)
    except (OSError, ValueError, Error):
        return False
    return isinstance(made, dict) and made.keys() >= _KEYS


def winner(
    found: dict[str, Any], metric: str | None = None, *, unproven: bool = False, contradicted: bool = False
) -> Winner:
    """What it proposes, for a metric or its first objective; if not proven, only where that is asked for, and
    so where its counters contradict it."""
    name = str(found["name"])
    if found["kind"] not in KINDS:
        what = f"a study of the kind {found['kind']} ends with no setting to apply"
        fix = "Give a search or a comparison: `netdyno tune search`, `netdyno tune compare`"
        raise Error("ND-104-54", what, at=name, fix=fix)
    listed = [one for one in winners(found) if one.setting]
    if not listed and found["kind"] == "compare":
        raise _baseline_was_second(name, found["result"])
    if not listed:
        what = "nothing looked better than the baseline"
        raise Error("ND-104-54", what, at=name, fix="There is nothing to apply; search with more --trials")
    if metric is not None:
        of = [one for one in listed if metric in one.metric.split(", ")]
        if not of:
            fix = f"It has: {', '.join(one.metric for one in listed)}"
            raise Error("ND-104-52", f"it was not searched for {metric!r}", at=f"{name} and --best", fix=fix)
        listed = of
    one = next((one for one in listed if one.proven), listed[0])
    if one.refuted and not unproven:
        fix = "Keep the baseline; or add --unproven to try it all the same"
        raise Error("ND-104-54", f"its setting does not help: {one.objection}", at=name, fix=fix)
    if one.objection and not unproven:
        what = f"its setting is not proven: {one.objection}"
        fix = "Measure it again, with more --pairs; or add --unproven to try it all the same"
        raise Error("ND-104-54", what, at=name, fix=fix)
    if one.proven and one.contradicted and not contradicted:
        what = "it is better, but no counter moved as would explain it: something else may be the cause"
        fix = "Look for what else differs; or add --contradicted to apply it all the same"
        raise Error("ND-104-54", what, at=name, fix=fix)
    return one


def _baseline_was_second(name: str, result: dict[str, Any]) -> Error:
    """That a comparison ends with the baseline itself: there is nothing to set."""
    of = {word: [one["metric"]["name"] for one in result["metrics"] if one["verdict"] == word]
          for word in ("better", "worse")}  # fmt: skip
    first = result["a"]["name"]
    what, fix = f"its second setting is the baseline, compared with {first}", "There is nothing to apply"
    if of["better"] and not of["worse"]:
        what = f"the baseline is the better one ({', '.join(of['better'])}), compared with {first}"
    elif of["worse"] and not of["better"]:
        what = f"the baseline is the worse one ({', '.join(of['worse'])}), compared with {first}"
        fix = f"Prove {first} first: `netdyno tune compare BENCH baseline {first}`"
    return Error("ND-104-54", what, at=name, fix=fix)
