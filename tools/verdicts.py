"""The table of `docs/methodology/verdict.md`: what a run against each server of `tests/failing` comes to."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/methodology/verdict.md"
BEGIN, END = "<!-- cases: made by `./do schema` from tests/failing -->", "<!-- end of cases -->"

sys.path.insert(0, str(ROOT / "tests"))
from failing.cases import CASES, DPDK, Case  # noqa: E402


def page() -> str:
    """The page with its table as the cases have it."""
    before, begin, rest = (ROOT / PAGE).read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE}: the marks {BEGIN} and {END} are not both there")
    return "\n".join([before + BEGIN, "", *table(), "", END + after])


def table() -> Iterable[str]:
    """One row for all protocols with which a behaviour comes to the same."""
    yield "| the server | protocols | failures counted | built-in check | no thresholds | errors: 0 | |"
    yield "|---|---|---|---|---|---|---|"
    rows: dict[tuple[str, ...], list[str]] = {}
    dpdk = {case.name: case for case in DPDK}
    for case in CASES:
        other = dpdk.get(case.name)
        alike = other is not None and _outcome(other) == _outcome(case)
        name = case.protocol.name + (" with `reconnect`" if case.model else "")
        rows.setdefault(_outcome(case), []).append(f"{name} (sockets and DPDK)" if alike else name)
        if other is not None and not alike:
            rows.setdefault(_outcome(other), []).append(f"{name} (DPDK)")
    for (says, *outcome), protocols in rows.items():
        yield f"| {' | '.join([says, ', '.join(protocols), *outcome])} |"


def _outcome(case: Case) -> tuple[str, ...]:
    kinds = [f"`{kind}`" for kind in case.shows] or ["none"]
    shown = " and ".join(kinds)
    if case.may:
        shown += f"; or also {', '.join(f'`{kind}`' for kind in case.may)}"
    for counter in case.counts:
        shown += f"; `{counter}` is counted"
    check = f"`{case.check}` fails" if case.check else ""
    bare = {"none": "no verdict"}.get(case.bare, case.bare)
    return case.server().says, shown, check, bare, case.judged, case.note
