"""Speed, against the peer to beat: interleaved rounds in one run, on the machine as it is now.

    ./do bench [CASE...] [--rounds N] [--seconds S] [--json FILE] [--against NETDYNOD]
    ./do bench --table FILE...

A case plays the same load with netdyno and with its peers, in turn, and gives for each round the rate and the
generator's CPU per operation. `ratio` is ours / peer pair by pair (for CPU and delay: peer / ours), so that
above 1 is better for us. It has its 95 % interval (Wilcoxon's signed-rank test of the logarithms), and the
interval alone decides: faster, slower, or no difference shown; a goal reached, missed or not decided.

With `--against` the peer is another build of the core; `cycles` is what the elements spend on a packet.
`--table` makes a Markdown table of kept results, a fast hour next to a slow one.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import platform
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cases_testpmd
from bed import GENERATOR, SERVER, Core, Skipped
from case import BUILD, CYCLES, Case
from cases import CASES
from hour import Hour, undisturbed
from judge import LEAST, Metric, row
from rounds import Figures, Peer, Record, Sides, best, play
from table import table

from netdyno.errors import Error


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = next(
        (
            x.split(":")[1].strip()
            for x in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in x
        ),
        "",
    )
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


@contextlib.contextmanager
def daemon(program: Path | None) -> Iterator[None]:
    """Let what starts a daemon meanwhile start this build; None is the present one."""
    before = os.environ.get("NETDYNO_DAEMON")
    if program is not None:
        os.environ["NETDYNO_DAEMON"] = str(program)
    try:
        yield
    finally:
        if program is not None:
            os.environ.pop("NETDYNO_DAEMON")
            if before is not None:
                os.environ["NETDYNO_DAEMON"] = before


@contextlib.contextmanager
def build(case: Case, program: Path | None) -> Iterator[Sides]:
    """Our side of a case by a build; a round tells the elements' cycles, too."""
    first = len(Core.made)
    with contextlib.ExitStack() as made:
        with daemon(program):
            sides = made.enter_context(case.setup())
        cores = Core.made[first:]

        def round_(seconds: float) -> Figures:
            with daemon(program):
                figures = sides.ours(seconds)
            cycles = [spent for core in cores if (spent := core.cycles()) is not None]
            return figures | ({"cycles": cycles[-1]} if cycles and "cycles" not in figures else {})

        yield Sides(round_, cannot=sides.cannot)


@contextlib.contextmanager
def builds(case: Case, program: Path) -> Iterator[Sides]:
    """The present build, and another one as its peer."""
    with build(case, None) as now, build(case, program) as other:
        yield Sides(now.ours, (Peer(BUILD, {"": other.ours}),), now.cannot)


def compare(
    case: Case, rounds: int, seconds: float, program: Path | None = None
) -> tuple[dict[str, Any], Record]:
    """Play a case: its rows by metric and peer. A peer with several settings plays at its best one."""
    metrics = {"cycles": CYCLES, **case.metrics}
    if program:
        # what is aimed at is aimed at with the peers
        metrics = {name: replace(metric, goals=()) for name, metric in metrics.items()}
    with builds(case, program) if program else case.setup() as sides:
        for name, why in sides.absent.items():
            print(f"  {name} skipped: {why}", flush=True)
        chosen, settings = {}, {}
        for peer in sides.peers:
            setting, tried = best(peer, min(seconds, 1.0))
            chosen[peer.name] = partial(peer.settings[setting], seconds)
            if tried:
                settings[peer.name] = {"setting": setting, "tried": tried}
                medians = (f"{name}: {statistics.median(x):,.0f}" for name, x in tried.items() if x)
                print(f"  {peer.name} at {setting}, its best of {', '.join(medians)}", flush=True)
        record = play(
            {"ours": partial(sides.ours, seconds), **chosen},
            rounds,
            watch=partial(undisturbed, sorted({SERVER, GENERATOR})),
        )
        return rows(record, metrics, sides, settings), record


def rows(
    record: Record, metrics: Mapping[str, Metric], sides: Sides, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What is kept of a case, by `METRIC`, or by `METRIC:PEER` where there are several peers."""
    found = {}
    for name, metric in metrics.items():
        ours, cannot = record.of("ours", name), sides.cannot.get(name)
        peers = [peer.name for peer in sides.peers if record.measures(peer.name, name)]
        for peer in peers:
            if kept := row(metric, ours, record.of(peer, name), cannot):
                kept["against"] = {"name": peer, **settings.get(peer, {})}
                found[f"{name}:{peer}" if len(sides.peers) > 1 else name] = kept
        if not peers and (kept := row(metric, ours, None, cannot)):
            found[name] = kept
    return found


def show(name: str, rows: Mapping[str, Any], record: Record) -> dict[str, Any]:
    """Print them a line each; by their keys."""
    shown = {}
    for metric, kept in rows.items():
        first, _, peer = metric.partition(":")
        key = (name if first == "rate" else f"{name}.{first}") + (f":{peer}" if peer else "")
        shown[key] = kept
        words = [f"ours {kept['ours']:,.2f}"]
        if against := kept.get("against"):
            words.append(f"{against['name']} " + ("–" if kept["peer"] is None else f"{kept['peer']:,.2f}"))
            if kept["ratio"] is not None:
                bounds = ", ".join(f"{bound:.3f}" for bound in kept["interval"] or ())
                words.append(f"ratio {kept['ratio']:.3f}" + f" [{bounds}]" * bool(bounds))
            words.append(kept["verdict"])
        print(f"  {key:22} {'  '.join(words)}  {kept['unit']}", flush=True)
        for goal, outcome in kept.get("goals", {}).items():
            print(f"  {'':22} goal, {goal}: {outcome}", flush=True)
    for why in record.unusable:
        print(f"  round {why['round']} of {why['side']} does not count: {why['why']}", flush=True)
    return shown


def options() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(
        prog="./do bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument(
        "--rounds",
        type=int,
        default=12,
        help=f"rounds that count; {LEAST} are the least for a verdict (default 12)",
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each lasts (default 4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result, all rounds with it")
    parser.add_argument(
        "--against", type=Path, metavar="NETDYNOD", help="another build of the core, as the peer"
    )
    parser.add_argument(
        "--table",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="only a Markdown table of results that were kept",
    )
    return parser.parse_args()


def main() -> int:
    """Run the cases that are named, or all."""
    args = options()
    if args.table:
        print(table({path.stem: json.loads(path.read_text()) for path in args.table}))
        return 0
    if os.geteuid() != 0:
        print("error ND-92-22: the benches make network namespaces: run them as root", file=sys.stderr)
        return 92
    # as Ctrl-C: what was started is ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names: dict[str, Case] = {}
    for wanted in args.cases or ["*"]:
        named = {name: CASES[name] for name in CASES if fnmatch.fnmatchcase(name, wanted)}
        if not named:
            print(f"error ND-104-22: no case {wanted!r}; there are {', '.join(CASES)}", file=sys.stderr)
            return 104
        names |= named
    results: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    broken: dict[str, str] = {}
    unusable: dict[str, Any] = {}
    hour = Hour(cases_testpmd.reference)
    for name, case in names.items():
        print(f"{name} …", flush=True)
        try:
            found, record = compare(
                case, args.rounds, args.seconds, args.against.absolute() if args.against else None
            )
        except Skipped as why:
            skipped[name] = str(why)
            print(f"  skipped: {why}", flush=True)
            continue
        except (Error, SystemExit) as why:
            if isinstance(why, SystemExit) and isinstance(why.code, int):
                raise  # somebody ended all of it
            broken[name] = str(why)
            print(f"  broken: {why}", file=sys.stderr, flush=True)
            continue
        finally:
            # what a case that broke has left running would be beside the next one
            for core in Core.made:
                core.close()
        results |= show(name, found, record)
        if record.unusable:
            unusable[name] = record.unusable
    if args.json:
        kept = {**results, "skipped": skipped, "broken": broken, "unusable": unusable}
        kept |= {"machine": machine(), "hour": hour.ended()}
        args.json.write_text(json.dumps(kept, indent=1))
    if broken:
        return 1
    return 0 if results else 92


if __name__ == "__main__":
    sys.exit(main())
