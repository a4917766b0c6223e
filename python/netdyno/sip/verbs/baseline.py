"""The tester against itself, without a DUT: what a search can find at most (RFC 7502 section 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdyno.cli.execute import Views, measure
from netdyno.cli.options import Outputs
from netdyno.core import secret
from netdyno.core.result import Result
from netdyno.core.search import SearchFinding
from netdyno.errors import Error
from netdyno.experiment import choose
from netdyno.search import rfc2544
from netdyno.search.request import Baseline
from netdyno.sip import uri
from netdyno.sip.profile import Options
from netdyno.sip.server import SipServer

RESOLUTION, REPEAT, SECONDS = 0.05, 3, 5.0
"""How fine the baseline is, how often it is tried near there, and how long a trial is."""
CALLEE = "baseline"
HOST = "127.0.0.1"


def measured(
    options: Options, document: Callable[[Options], dict[str, Any]], password: str | None, outputs: Outputs
) -> Baseline:
    """User agents against a server of our own on this machine, up to the rate of the search."""
    settings: dict[str, Any] = {
        "listen": f"{HOST}:0",
        "role": "uas",
        "domain": options.domain or options.server.host.strip("[]"),
        "password": secret.from_option(password, "--password") if password else None,
    }
    match options.server.transport:
        case "tls":
            settings["tls"] = {"listen": f"{HOST}:0", "identity": {"self_signed": True}}
        case "ws" | "wss" as transport:
            settings[transport] = f"{HOST}:0"
    with SipServer(settings) as server:
        own = _against(options, server.addresses)
        experiment, search, _ = rfc2544.prepare(
            rfc2544.rate(resolution=RESOLUTION, repeat=REPEAT),
            choose.document(document(own) | {"name": "sip-baseline"}, "sip-baseline", Path()),
            duration=min(SECONDS, options.duration),
        )
        result, _ = measure(experiment, Path(), replace(outputs, json=False), Views(), schedule=search)
    findings = [one for part in (result.search.parts if result.search else []) for one in part.findings]
    found = findings[0] if findings else None
    if found is None or not found.load:
        raise _unusable(result, found)
    return Baseline(found.load, found.limit == "offered")


def _unusable(result: Result, found: SearchFinding | None) -> Error:
    """A tester that carries no load against a server of its own: nothing could be said of another server."""
    why = "; ".join(found.notes if found else [])
    if result.error:
        why = str(result.error.get("what"))
    what = f"no load passes against a server of our own: {why or 'no trial was valid'}"
    fix = "Check options and thresholds, stop other programs on this machine; --no-baseline leaves it out"
    return Error("ND-90-30", what, at="baseline", fix=fix)


def _against(options: Options, addresses: Mapping[str, str]) -> Options:
    transport = options.server.transport
    port = int(addresses.get(transport, addresses["address"]).rpartition(":")[2])
    server = uri.Server(HOST, port, transport, path=options.server.path)
    domain = options.domain or options.server.host
    own = replace(options, server=server, domain=domain, callee=CALLEE, failover=None, ca=None, insecure=True)
    return replace(own, sources=(), callee_sources=())
