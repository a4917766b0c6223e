"""Tables and plots of a load search: the highest load of each leg and frame size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from netdyno import quantities
from netdyno.core.result import Result
from netdyno.core.search import SearchFinding, SearchPart
from netdyno.reproduction import chart
from netdyno.reproduction.part import Summary

LIMITS = {
    "dut": "the device under test",
    "offered": "the highest load offered",
    "generator": "our generator or receiver",
    "lowest": "even the lowest load failed",
    "lost": "the device under test was lost",
}
"""What bounds a figure, in words."""


def summary(document: Mapping[str, object], only: str = "") -> Summary:
    """The summary of a search result; `only`: the leg's name where the search names none."""
    result = Result.model_validate(document)
    search = result.search
    if search is None:
        raise ValueError("it is no result of a search")
    usage = _usage(result)
    rows = []
    for part in search.parts:
        for found in part.findings:
            rows.append((*_names(part, only), *_figures(part, found), *_cpu(part, usage)))
    heads = ["leg", "frame", "throughput", "bit rate", "of the line", "limited by", "trials", "generator CPU"]
    every = [(part, found) for part in search.parts for found in part.findings]
    best = [one for one in every if one[1].load is not None]
    said = "; ".join(_sentence(part, found, only) for part, found in best[:4])
    if not best:
        limits = Counter(LIMITS[found.limit] for _, found in every)
        said = f"no load met the goal: {', '.join(f'{limit} ({n})' for limit, n in limits.items())}"
    # a leg without a figure for want of a generator is no property of what is measured
    valid = search.valid and not any(f.load is None and f.limit == "generator" for _, f in every)
    plots = (_plot(result.name, search.parts, only),) if best else ()
    return Summary(said, heads, rows, plots, search.notes, result.id, valid)


def _names(part: SearchPart, only: str) -> tuple[str, str]:
    if part.leg:
        return part.leg, part.size or quantities.NONE
    return (only, part.name) if only else (part.name, quantities.NONE)


def _figures(part: SearchPart, found: SearchFinding) -> Sequence[str]:
    rate = quantities.NONE if found.load is None else quantities.si(found.load, "pps")
    bits = quantities.NONE if found.bits is None else quantities.si(found.bits, "bit/s")
    line = quantities.NONE if found.line is None else f"{found.line:.1%}"
    return rate, bits, line, LIMITS[found.limit], str(found.trials)


def _sentence(part: SearchPart, found: SearchFinding, only: str) -> str:
    leg, size = _names(part, only)
    own = " (limit: ours)" if found.limit == "generator" else ""
    return f"{leg} {size} {_figures(part, found)[0]}{own}"


def _usage(result: Result) -> dict[str, float]:
    """Share of a core that the busiest worker took, by leg of a trial."""
    return {
        leg.name: max(worker.cpu for worker in one.workers)
        for leg in result.legs
        for one in leg.repetitions
        if one.workers and one.validity.valid
    }


def _cpu(part: SearchPart, usage: Mapping[str, float]) -> tuple[str]:
    """CPU of the generator at the load that was found."""
    found = next((one for one in part.findings if one.load is not None), None)
    if found is None or found.load is None:
        return (quantities.NONE,)
    legs = [one.leg for one in part.trials if one.counts and abs(one.load - found.load) < 1.0]
    shares = [usage[leg] for leg in legs if leg in usage]
    return (f"{max(shares):.0%}" if shares else quantities.NONE,)


def _plot(name: str, parts: Sequence[SearchPart], only: str) -> str:
    series: dict[str, dict[str, float]] = {}
    for part in parts:
        leg, size = _names(part, only)
        for found in part.findings:
            if found.load is not None:
                series.setdefault(leg, {})[size] = found.load
    return chart.bars(f"Throughput: {name}", series, "pps")
