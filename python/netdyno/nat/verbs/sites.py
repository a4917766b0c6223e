"""`netdyno nat sites`: the sites of a NAT, and which public address each has by DHCP."""

from __future__ import annotations

from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.nat import running
from netdyno.nat.verbs.show import Limit, Name, note_rest
from netdyno.report.units import seconds

NO_SITES = ("ND-104-11", "graph.elements")
"""Code and place of what the core says where nothing of the graph gets addresses for sites."""
HEADS = ("site", "virtual MAC", "address", "state", "lease left", "server", "subscribers", "worker")


def sites(name: Name = None, limit: Limit = 100, as_json: Json = False) -> None:
    """List the sites that get their public addresses by DHCP.

    `state` is that of the DHCP client (RFC 2131): a site has its address while it is bound, renewing or
    rebinding. One whose subscribers are all gone is `released`; when one comes it asks for its address again.
    `worker` has all of a site, from 0.

        netdyno nat sites
        netdyno nat sites cgn --json
    """
    with running.connected(name) as nat:
        try:
            found, more = nat.pages("nat.sites", "sites", limit)
        except Error as e:
            if (e.code, e.at) != NO_SITES:
                raise
            what, fix = f"the NAT {nat.name} has a pool and no sites", "`netdyno nat pools` shows its pool"
            raise Error(e.code, what, at="sites", fix=fix) from e
    if as_json:
        console.document({"nat": nat.name, "sites": found, "more": more})
        return
    rows = [
        [
            one["site"],
            one["mac"],
            one["address"] or "–",
            one["state"],
            "–" if one["lease_s"] is None else seconds(one["lease_s"]),
            one["server"] or "–",
            f"{one['subscribers']:,}",
            str(one["worker"]),
        ]
        for one in found
    ]
    console.table(HEADS, rows, right=("lease left", "subscribers", "worker"))
    note_rest(more, limit)
