"""`netdyno sip ladder`: the messages of calls as ladder diagrams."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from netdyno import files
from netdyno.cli import console, values
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.sip.ladder import text
from netdyno.sip.ladder.calls import Call
from netdyno.sip.ladder.source import Source, find
from netdyno.store import trusted


@trusted("SOURCE")
def ladder(
    source: Annotated[
        str,
        typer.Argument(
            help="Capture (pcap, pcapng), or run: id, `latest`, folder.",
            metavar="FILE|RUN",
            autocompletion=values.stored_run,
        ),
    ],
    call_id: Annotated[
        list[str] | None,
        typer.Option(help="Calls whose Call-ID has this text in it.", metavar="TEXT"),
    ] = None,
    failed: Annotated[
        bool, typer.Option(help="Calls with a request that was rejected or got no final response.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option(help="Show this many calls.", metavar="N", parser=values.whole("--limit", 1, 10_000)),
    ] = 5,
    as_list: Annotated[
        bool, typer.Option("--list", help="List the calls in place of their diagrams.")
    ] = False,
    messages: Annotated[
        bool, typer.Option("--messages", help="Print the text of each message below its diagram.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Page with the diagrams.", metavar="FILE")] = None,
    hep: Annotated[
        str | None,
        typer.Option(help="Send the messages to a HEP version 3 server, like Homer.", metavar="ADDRESS:PORT"),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Draw each message as it comes, of a run under way or a capture that grows.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the SIP messages of a capture or a run as ladder diagrams, one for each call.

    Reads UDP and TCP. Of a run it reads what `--capture` kept. A message that was sent again over UDP has
    the word `repeated`, and a dashed arrow on the page. Digest responses, other credentials and keys are
    hidden.

    With `--follow` messages appear while the run with `--capture` is under way: of the first `--limit` calls
    of each method, or of those that `--call-id` names. It ends with the run; of a file, at Ctrl-C.

        netdyno sip ladder trace.pcap
        netdyno sip ladder latest --failed --limit 3
        netdyno sip ladder latest --follow --limit 1
        netdyno sip ladder trace.pcapng --call-id 3848276298 --html call.html
        netdyno sip ladder latest --failed --hep 192.0.2.9:9060
    """
    if follow:
        _follow(source, call_id or (), limit, {"--failed": failed, "--list": as_list, "--messages": messages,
                "--html": bool(html), "--hep": bool(hep), "--json": as_json})  # fmt: skip
        return
    found = find(source)
    # whether a call failed is known at its end: all of them are read
    most = None if failed or as_list else limit
    calls = found.calls(call_id or (), most)
    if failed:
        calls = [one for one in calls if one.failures]
    everything, calls = len(calls), calls[:limit] if not as_list else calls
    if found.cut:
        console.note(f"truncated packets: {found.cut:,}; their contents are unknown")
    if not everything:
        raise _nothing(found, bool(call_id), failed)
    if html:
        from netdyno.sip.ladder import page

        files.write(html, page.render(source, [one.record() for one in calls]), shared=True)
    if hep:
        from netdyno.sip.ladder import hep as export

        console.note(f"{export.send(hep, calls):,} messages sent to {hep}")
    if as_json:
        shown = [one.record().model_dump(by_alias=True) for one in calls]
        console.document({"source": source, "cut_packets": found.cut, "calls": shown})
    elif as_list:
        _list(calls)
    elif not html and not hep:
        _show(calls, messages)
    if failed and everything > limit and not as_list:
        console.note(f"{everything - limit} more failed; --limit shows more")


def _follow(source: str, wanted: Sequence[str], limit: int, others: Mapping[str, bool]) -> None:
    if other := next((name for name, given in others.items() if given), None):
        fix = f"Leave {other} out, or read the capture when the run is over"
        raise Error("ND-104-07", f"{other} is of a capture that is whole", at="--follow", fix=fix)
    from netdyno.sip.ladder import follow

    def show(text: str) -> None:
        console.line(text)
        sys.stdout.flush()

    follow.follow(source, wanted, limit, show)


def _nothing(found: Source, named: bool, failed: bool) -> Error:
    if not found.messages:
        what = f"there is no whole SIP message among {found.packets:,} packets"
        fix = "TLS cannot be read from a capture; capture SIP over UDP or TCP"
    elif failed:
        what, fix = "no call failed", "Leave out --failed"
    else:
        what, fix = "no Call-ID has this text in it", "`--list` shows the calls"
    return Error("ND-104-71", what, at="--call-id" if named and found.messages else str(found.path), fix=fix)


def _list(calls: list[Call]) -> None:
    rows = [
        (
            one.call_id,
            one.method,
            one.parties[0],
            str(len(one.arrows)),
            str(one.repeated),
            one.result,
        )
        for one in calls
    ]
    console.table(["Call-ID", "method", "from", "messages", "repeated", "result"], rows)


def _show(calls: list[Call], messages: bool) -> None:
    for at, call in enumerate(calls):
        if at:
            console.line("")
        console.line(f"{call.call_id}: {call.result}")
        for row in text.lines(call.drawn, call.parties):
            console.line(row)
        for number, arrow in enumerate(call.arrows if messages else (), start=1):
            console.line("")
            console.line(f"{number}. {arrow.at_ms:,.1f} ms  {arrow.source} > {arrow.to}")
            for row in arrow.text.replace("\r", "").rstrip().split("\n"):
                console.line(row)
