"""`netdyno switch list`: which switches work on this machine, and why others do not."""

from __future__ import annotations

from dataclasses import asdict

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.switch.support import support


def list_(as_json: Json = False) -> None:
    """List virtual switches: which work here, and what the others lack.

    Nothing is started, and no root is needed.

        netdyno switch list
    """
    found = support()
    if as_json:
        console.document([asdict(one) for one in found])
        return
    rows = [
        (one.name, "yes" if one.works else "no", one.version or "–", "OpenFlow 1.3" if one.openflow else "–",
         one.about if one.works else one.why)
        for one in found
    ]  # fmt: skip
    console.table(("switch", "works here", "version", "flows", "what it is, or what it lacks"), rows)
