"""`netdyno rate`: another rate for a run that is under way."""

from __future__ import annotations

from typing import Annotated

import typer

from netdyno.cli import console, values
from netdyno.cli.graph import find
from netdyno.cli.options import Json, Socket
from netdyno.core.client import Client
from netdyno.errors import Error


def rate(
    changes: Annotated[
        list[str], typer.Argument(help="Group and rate, like web=200/s.", metavar="GROUP=RATE...")
    ],
    each_flow: Annotated[
        bool, typer.Option("--each-flow", help="Messages of each flow, not of the whole group.")
    ] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Change the rate of a run while it runs.

    RATE is of the whole group: flows that begin where the load is an open loop, else messages of all its
    devices. It takes effect at the next point of the series; the result has each change under `rates`.

        netdyno rate web=200/s
        netdyno rate sensors=2/s --each-flow
    """
    groups = dict(_change(text, each_flow) for text in changes)
    with Client(socket or find()) as client:
        found = client.call("run.rate", groups=groups)
    if as_json:
        console.document(found)
        return
    for one in found["rates"]:
        what = {"flow": "messages/s of each flow", "group": "messages/s", "arrivals": "flows/s"}[one["of"]]
        console.note(
            f"{found['run']}: {one['group']} from {one['t']:.1f} s on: "
            f"{one['before']:,.6g} → {one['rate']:,.6g} {what}"
        )


def _change(text: str, each_flow: bool) -> tuple[str, dict[str, str]]:
    group, equals, given = text.rpartition("=")
    if not equals or not group:
        raise Error(
            "ND-104-04", f"{text!r} names no group and rate", at="GROUP=RATE", fix="Write it like web=200/s"
        )
    wanted = {"rate": values.rate("GROUP=RATE")(given)}
    return group, wanted | ({"of": "flow"} if each_flow else {})
