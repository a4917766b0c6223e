"""`netdyno sip automatic`: conformance, then the highest rates, then a report, by one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import files
from netdyno.cli import console, values
from netdyno.cli.options import Repeat, Resolution, Strategy
from netdyno.core.result import Result
from netdyno.core.search import SearchFinding
from netdyno.errors import PASS, Error
from netdyno.search import words
from netdyno.sip.conformance import page
from netdyno.sip.conformance.junit import junit
from netdyno.sip.conformance.suite import Report
from netdyno.sip.verbs import gate, options
from netdyno.sip.verbs.load import Hold, Target
from netdyno.sip.verbs.search import SESSIONS, highest_rate

FOLDER = Path("sip-automatic")


@options.automated
def automatic(
    server: Target,
    hold: Hold = "0s",
    sessions: Annotated[
        int,
        typer.Option(
            help="Sessions of the trial that confirms each rate, none of which may fail; 0: no such trial.",
            metavar="N",
            parser=values.whole("--sessions", 0, 100_000_000),
        ),
    ] = SESSIONS,
    baseline: Annotated[
        bool, typer.Option(help="First measure what the tester carries without a DUT.")
    ] = True,
    resolution: Resolution = 0.02,
    strategy: Strategy = "binary",
    repeat: Repeat = None,
    keep: Annotated[Path, typer.Option(help="Folder of the reports.", metavar="DIR")] = FOLDER,
    **given: Any,
) -> None:
    """Test a server's conformance, then find its highest rates, and write the reports.

    First the conformance tests of a registrar and proxy; where one fails that is not waived, it ends there
    with exit code 99. Then the highest rates of registrations and of calls up to `--rate`, as
    `netdyno sip search` finds them. The folder of `--keep` has all verdicts and ladders (`conformance.html`,
    `conformance.xml`), the report of each search (`register.html`, `call.html`), and `automatic.json`.

        netdyno sip automatic sip:192.0.2.1 --domain example.net --password env:SIP_PASSWORD --rate 20k/s
        netdyno sip automatic sip:192.0.2.1 --rate 5k/s --sessions 5000 --waive P21,P22 --keep lab
    """
    lasts = options.seconds(hold, "--hold")
    loads = {
        "register": options.read(server, given),
        "call": options.read(server, given, hold=lasts, callee=None),
    }
    if loads["call"].callee is not None:
        fix = "Leave the user out of the URI"
        raise Error("ND-104-03", "the calls of a search go to callees of its own", at=server, fix=fix)
    files.make_folder(keep)
    report = gate.played(loads["call"], given, "call")
    files.write(keep / "conformance.html", page.render(report), shared=True)
    files.write(keep / "conformance.xml", junit(report), shared=True)
    document: dict[str, Any] = {
        "format": "netdyno-sip-automatic/1",
        "server": report.server,
        "conformance": report.model_dump(by_alias=True),
        "searches": {},
    }
    _write(keep, document)
    gate.refuse(report)
    how = {"resolution": resolution, "strategy": strategy, "repeat": repeat, "dry_run": False, "resume": None}
    codes, found = [], {}
    for kind, read in loads.items():

        def note(result: Result, folder: Path, kind: str = kind) -> None:
            found[kind] = _finding(result)
            document["searches"][kind] = {
                "run": result.id,
                "folder": str(folder),
                "verdict": result.verdict,
                "finding": finding.model_dump() if (finding := found[kind]) else None,
            }

        console.note(f"search: {kind}")
        to = {"html": keep / f"{kind}.html", "json": False, "quiet": True}
        codes.append(highest_rate(kind, read, {**given, **how, **to}, sessions, baseline, note))
        _write(keep, document)
    if given["json"]:
        console.document(document)
    else:
        _show(report, found, keep)
    raise typer.Exit(next((code for code in codes if code != PASS), PASS))


def _finding(result: Result) -> SearchFinding | None:
    parts = result.search.parts if result.search else []
    return next((one for part in parts for one in part.findings), None)


def _write(folder: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    files.write(folder / "automatic.json", text, shared=True)


def _show(report: Report, found: dict[str, SearchFinding | None], folder: Path) -> None:
    rows = [("conformance", gate.counts(report), "conformance.html")]
    for kind, finding in found.items():
        unit = "calls/s" if kind == "call" else "registrations/s"
        load = words.load(finding.load if finding else None, unit)
        limit = f" (limit: {finding.limit})" if finding else ""
        rows.append((f"highest rate, {kind}", f"{load}{limit}", f"{kind}.html"))
    console.table(["automatic", "found", f"in {folder}"], rows, f"\n{report.server}")
