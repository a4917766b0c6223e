"""Kept results side by side, as Markdown: what each hour gave, and what of it holds in all of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from case import BUILD, CYCLES
from cases import CASES
from judge import Metric, row

HEAD = ("case", "run", "reference", "steal", "load", "ours", "peer", "ratio", "")
NOTE = """\
reference: frames a second that testpmd sends into nothing, which tells a fast hour from a slow one. A verdict
needs at least 6 pairs, also where an older run had fewer."""
REFERENCE = "dpdk-send-null"
"""The case whose peer tells how fast the machine was, in results that keep no reference of the hour."""


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each case and run, the runs of a case next to each other; by the name of each result."""
    parts = {name: part for stem, kept in results.items() for name, part in _parts(stem, kept)}
    cases = list(dict.fromkeys(case for part in parts.values() for case in _cases(part)))
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    for case in cases:
        for name, part in parts.items():
            if kept := _cases(part).get(case):
                cells = (case, name, *_hour(part), *_figures(case, kept))
                lines.append("| " + " | ".join(cells) + " |")
    lines += ["", NOTE]
    return "\n".join(lines)


def _parts(stem: str, kept: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A result, or each of those that one file has under names."""
    if _cases(kept):
        yield stem, kept
    for name, part in kept.items():
        if isinstance(part, dict) and "runs" not in part and _cases(part):
            yield f"{stem}: {name}", part


def _cases(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What of a result is a case."""
    return {name: part for name, part in kept.items() if isinstance(part, dict) and "runs" in part}


def _hour(kept: Mapping[str, Any]) -> tuple[str, str, str]:
    """Reference, steal and load; results that do not keep them have the reference if they have its case."""
    hour = kept.get("hour") or {}
    if hour.get("reference"):
        reference = statistics.fmean(hour["reference"]["figures"])
    else:
        reference = (kept.get(REFERENCE) or {}).get("peer") or 0.0
    steal, load = hour.get("steal"), hour.get("load")
    return (
        f"{reference / 1e6:.1f} M" if reference else "–",
        "–" if steal is None else f"{steal:.1%}".replace("%", " %"),
        "–" if not load else " … ".join(f"{x:.1f}" for x in load),
    )


def _figures(case: str, kept: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Ours, the peer's, the ratio with its interval, and what follows, from the rounds that were kept."""
    runs = kept["runs"]
    ours, peer = (runs.get(key, runs.get(old, [])) for key, old in (("ours", "now"), ("peer", "before")))
    pairs = min(len(ours), len(peer)) if peer else 0
    metric = _metric(case, kept)
    seen = row(metric, ours[:pairs] if peer else ours, peer[:pairs] if peer else None)
    if seen is None:
        return "–", "–", "–", "no round"
    said = [seen["verdict"]] if peer else []
    # older results have only whether a median reached it: judged now
    goals = {goal: x for goal, x in kept.get("goals", {}).items() if isinstance(x, str)} or seen.get(
        "goals", {}
    )
    said += [f"{goal}: {outcome}" for goal, outcome in goals.items()]
    name = kept.get("against", {}).get("setting") or kept.get("against", {}).get("name")
    ratio = "–" if seen["ratio"] is None else f"{seen['ratio']:.2f}"
    if seen.get("interval"):
        ratio += " [{:.2f}, {:.2f}]".format(*seen["interval"])
    return (
        f"{_number(seen['ours'])} {kept['unit']}",
        "–" if seen["peer"] is None else _number(seen["peer"]) + (f", {name}" if name else ""),
        ratio,
        "; ".join(said),
    )


def _metric(case: str, kept: Mapping[str, Any]) -> Metric:
    """What is known of a figure; two builds are held to no goal."""
    name, _, figure = case.partition(":")[0].partition(".")
    metric = CASES[name].metrics.get(figure or "rate") if name in CASES else None
    metric = replace(metric or CYCLES, unit=kept["unit"])
    builds = "now" in kept["runs"] or kept.get("against", {}).get("name") == BUILD
    return replace(metric, goals=()) if builds else metric


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"
