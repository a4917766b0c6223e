"""Charts of points: what a trial had, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netdyno.report.charts import line, view
from netdyno.report.quantity import scale
from netdyno.report.text import Data, M, Msg, label

MOST = 4000
"""Points of one chart: more are no more to see."""

Trial = tuple[float, float, str]
"""Where it stands, what it had, and of which kind it is."""


def chart(
    name: str, title: Msg | Data, unit: str, views: list[dict[str, Any]], *, log: bool = False
) -> dict[str, Any]:
    """A chart of points; each view has its own x."""
    return {
        "id": name, "title": label(title), "unit": unit, "views": views, "log": log, "kind": "points",
    }  # fmt: skip


def points(
    text: Msg | Data,
    xlabel: Msg | Data,
    xunit: str,
    found: Iterable[tuple[float, float, str]],
    kinds: Mapping[str, tuple[Msg | Data, int]],
    *,
    xlog: bool = False,
    names: Sequence[str] = (),
    joined: Sequence[str] = (),
) -> dict[str, Any]:
    """A view: points of several kinds over one x; `joined` kinds have a line through them."""
    sorted_ = sorted(found)[:MOST]
    xs = [x for x, _, _ in sorted_]
    lines = [
        line(
            kinds[kind][0],
            [y if k == kind else None for _, y, k in sorted_],
            kinds[kind][1],
            points=True,
            joined=kind in joined,
        )
        for kind in kinds
        if any(k == kind for _, _, k in sorted_)
    ]
    return {
        **view(text, lines), "x": xs, "xlabel": label(xlabel), "xunit": xunit,
        "xlog": xlog and bool(xs) and min(xs) > 0, **({"names": list(names)} if names else {}),
    }  # fmt: skip


def charts_of_screening(name: str, metric: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How much each parameter matters, against how much that depends on the others."""
    kinds = {
        "matters": (M("Matters"), 0),
        "doubtful": (M("Not sure"), 1),
        "unseen": (M("No effect shown"), 3),
    }

    def kind(e: Mapping[str, Any]) -> str:
        return "matters" if e["matters"] else "doubtful" if e["doubtful"] else "unseen"

    found = [(e["mu_star"], e["sigma"], kind(e)) for e in metric["effects"]]
    across = M("Mean effect") if metric["zero_is_best"] else M("Mean effect (natural logarithm of the ratio)")
    one = points(Data(name), across, "number", found, kinds)
    return [chart("effects", M("Spread of each effect over the walks, by its mean"), "number", [one])]


def tried_chart(study: Mapping[str, Any]) -> dict[str, Any]:
    """With several objectives one against the other; with one, trial by trial and the best until then."""
    found = study["result"]
    objectives = found["objectives"]
    first = objectives[0]
    if len(objectives) > 1:
        return _front(found, objectives)
    metric = found["metrics"][first]
    factor, unit = scale(metric["unit"])
    kinds = {
        "baseline": (M("Baseline"), 3),
        "kept": (M("Within the limits"), 0),
        "beyond": (M("Beyond a limit"), 1),
        "best": (M("Best so far"), 2),
    }
    shown: list[Trial] = [(0.0, found["baseline"]["values"][first] * factor, "baseline")]
    best: float | None = None
    for i, t in enumerate(found["tried"], 1):
        value = t["metrics"].get(first)
        if value is None or t.get("lost"):
            continue
        shown.append((float(i), value * factor, "kept" if t["feasible"] else "beyond"))
        higher = metric["better"] == "higher"
        if t["feasible"] and (best is None or (value > best if higher else value < best)):
            best = value
        if best is not None:
            shown.append((float(i), best * factor, "best"))
    one = points(Data(first), M("Trial"), "id", shown, kinds, joined=["best"])
    return chart("tried", M("{metric}, trial by trial", metric=Data(first)), unit, [one])


def _front(found: Mapping[str, Any], objectives: Sequence[str]) -> dict[str, Any]:
    kinds = {
        "baseline": (M("Baseline"), 3),
        "kept": (M("Within the limits"), 0),
        "beyond": (M("Beyond a limit"), 1),
        "front": (M("Pareto set"), 2),
    }
    views = []
    y = objectives[0]
    yfactor, yunit = scale(found["metrics"][y]["unit"])
    for x in objectives[1:]:
        xfactor, xunit = scale(found["metrics"][x]["unit"])
        base = found["baseline"]["values"]
        shown: list[Trial] = [(base[x] * xfactor, base[y] * yfactor, "baseline")]
        for i, t in enumerate(found["tried"]):
            if x in t["metrics"] and y in t["metrics"]:
                kind = "front" if i in found["front"] else "kept" if t["feasible"] else "beyond"
                shown.append((t["metrics"][x] * xfactor, t["metrics"][y] * yfactor, kind))
        two = len(objectives) == 2
        views.append(points(Data(x), Data(x), xunit, shown, kinds, joined=["front"] if two else []))
    return chart("tried", M("{metric} against the others", metric=Data(y)), yunit, views)


def charts_of_parameters(studies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each metric, every parameter in turn: what it was, and what came of it."""
    kinds = {"screen": (M("Screening"), 3), "search": (M("Search"), 0)}
    metrics = {n: m for s in studies for n, m in s["result"]["metrics"].items()}
    axes = {a["name"]: a for s in studies for a in s["tunables"]}
    charts = []
    for name, metric in metrics.items():
        factor, unit = scale(metric["unit"])
        views = []
        for parameter, axis in axes.items():
            found: list[Trial] = []
            for study in studies:
                for trial in study["trials"]:
                    value = trial["observation"]["metrics"].get(name)
                    was = trial["setting"].get(parameter, axis["start"])
                    if value is None or not trial["observation"]["valid"]:
                        continue
                    at = axis["choices"].index(was) if "choices" in axis else float(was)
                    found.append((float(at), value * factor, study["kind"]))
            if found:
                names = [str(c) for c in axis.get("choices", ())]
                xlog = axis["scale"] == "log"
                views.append(
                    points(Data(parameter), Data(parameter), "count", found, kinds, xlog=xlog, names=names)
                )
        if views:
            ends = [v for one in views for each in one["lines"] for v in each["values"] if v is not None]
            # where one trial is many times another, both are to be seen
            log = min(ends) > 0 and max(ends) > 20 * min(ends)
            charts.append(chart(f"parameter-{name}", Data(name), unit, views, log=log))
    return charts
