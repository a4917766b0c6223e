"""`netdyno sip register`, `call`, `redirect` and `load`: load a SIP server and judge it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from netdyno import paths
from netdyno.cli import console, values
from netdyno.cli.execute import execute
from netdyno.cli.options import outputs
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import choose, cores
from netdyno.sip import positions, profile
from netdyno.sip import scenario as scenario_file
from netdyno.sip.parties import PARTIES
from netdyno.sip.verbs import gate, options, traced
from netdyno.sip.verbs.options import shared

PRESETS = (
    "register",
    "reregister",
    "unregister",
    "call",
    "early-media",
    "held-call",
    "cancel",
    "redirect",
    "options",
    "message",
    "subscribe",
)
"""Scenarios of the model itself."""
NAMES = (*PRESETS, *PARTIES)
"""All that come with the product."""

Target = Annotated[
    str, typer.Argument(metavar="URI", help="The server, like sip:192.0.2.1 or sips:example.net.")
]
Hold = Annotated[
    str,
    typer.Option(
        help="How long a call lasts, from ACK to BYE.", metavar="TIME", parser=values.time("--hold")
    ),
]

Callee = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Call this user, not registered by netdyno; default: that of the URI, else our own answer.",
        metavar="USER",
    ),
]
Ring = Annotated[
    str, typer.Option(help="How long a call rings.", metavar="TIME", parser=values.time("--ring"))
]
EarlyMedia = Annotated[
    bool,
    typer.Option(
        "--early-media", help="Callees send 183 reliably (100rel, PRACK) and audio while the call rings."
    ),
]
CalleeSource = Annotated[
    list[str] | None,
    typer.Option(
        help="Addresses that callees answer from.",
        metavar="ADDRESS|PREFIX",
        rich_help_panel=options.NETWORK,
    ),
]


@shared
def register(server: Target, **given: Any) -> None:
    """Register user agents, and report delay and success.

    Each flow registers one user agent: REGISTER, 401, REGISTER with the answer to the challenge, 200. The run
    passes when every registration succeeds and 95 % of them take at most 1,000 ms (RFC 6076 RRD).

        netdyno sip register sip:192.0.2.1 --password env:SIP_PASSWORD --rate 200/s
        netdyno sip register 'sip:192.0.2.1;transport=tcp' --users 5000 --password env:SIP_PASSWORD
        netdyno sip register sip:192.0.2.1 --rate 5k/s --fleet lab
    """
    read = options.read(server, given)
    gate.conform(read, given, "register")
    _run(profile.register(read), given)


@shared
@options.with_media
def call(
    server: Target,
    callee: Callee = None,
    hold: Hold = "0s",
    ring: Ring = "0s",
    early_media: EarlyMedia = False,
    max_calls: options.MaxCalls = None,
    callee_source: CalleeSource = None,
    **given: Any,
) -> None:
    """Call through a proxy, and report delay and success.

    Callees register first. Then calls begin at the rate given: INVITE, 180, 200, ACK, BYE, 200. The run
    passes when every call succeeds, and for 95 % of them the session request delay (INVITE to 180) is at most
    1,500 ms, and answer-signal (200 to ACK) and session disconnect delay (BYE to 200) at most 500 ms each.
    With --media calls have audio (G.711 over RTP), and each call of a second or longer must be heard by both:
    at least 90 % of the audio (--min-heard), and with a MOS of at least 3.6 in 95 % of calls (--min-mos).

        netdyno sip call sip:192.0.2.1 --password env:SIP_PASSWORD --rate 50/s --hold 3s
        netdyno sip call sip:192.0.2.1 --to 1000 --rate 5/s
        netdyno sip call sip:192.0.2.1 --media --audio speech.wav --hold 10s
        netdyno sip call sip:192.0.2.1 --dtmf 1234# --hold 3s
        netdyno sip call sip:192.0.2.1 --early-media --media --ring 2s --hold 5s
    """
    read = options.read_call(
        server,
        given,
        callee=callee,
        hold=hold,
        ring=ring,
        early_media=early_media,
        max_calls=max_calls,
        callee_sources=tuple(callee_source or ()),
    )
    if given["quiet"] and (why := profile.end_unmeasured(read)):
        console.note(why)
    gate.conform(read, given, "call")
    _run(profile.call(read), given)


@shared
def redirect(
    server: Target,
    callee: Callee = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Call the Contacts of the 3xx, by their q, each once, for --hold. Default: only ask.",
        ),
    ] = False,
    hold: Hold = "0s",
    max_calls: options.MaxCalls = None,
    **given: Any,
) -> None:
    """Ask a redirect server where to call, and report delay, success and rate.

    Callees register first, unless --to names a user whom the server knows. Then each flow is INVITE, 3xx,
    ACK. The run passes when every INVITE is redirected, and 95 % of them in at most 500 ms. With --follow the
    call goes to the Contacts of the 3xx, until one answers it; redirections in a circle are a failure.

        netdyno sip redirect sip:192.0.2.1 --domain example.net --password env:SIP_PASSWORD --rate 500/s
        netdyno sip redirect sip:192.0.2.1 --to 1000 --follow --hold 2s --rate 5/s
    """
    lasts = options.seconds(hold, "--hold")
    read = options.read(
        server, given, callee=callee, hold=lasts, max_calls=max_calls, follow_redirects=follow
    )
    if follow and read.callee is None:
        what = "who is called has to answer, and users of netdyno hear the server alone"
        raise Error("ND-104-03", what, at="--follow", fix="Name a user whom the server knows: --to USER")
    if lasts and not follow:
        raise Error("ND-104-03", "a call that is redirected does not last", at="--hold", fix="Add --follow")
    gate.conform(read, given, "redirect")
    _run(profile.redirect(read), given)


@shared
def load(
    server: Target,
    scenario: Annotated[
        str,
        typer.Option(help=f"A preset ({', '.join(NAMES)}) or a file of steps.", metavar="NAME|FILE"),
    ] = "options",
    to: Annotated[
        str | None,
        typer.Option(
            help="User to send requests to, or '' for the server itself. Default: that of the URI, else for "
            "options the server, else callee0, callee1, and so on.",
            metavar="USER",
        ),
    ] = None,
    hold: Hold = "0s",
    max_calls: options.MaxCalls = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="Be called at this address by the server or a caller, over UDP; users answer until the end.",
            metavar="ADDRESS:PORT",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Play a scenario at a rate, and report delay and success.

    A file of steps is YAML or JSON: a list of `send`, `expect`, `answer`, `set`, `assert`, `pause`, `repeat`,
    `label`, `goto`.
    A SIPp scenario (.xml) is converted. netdyno plays callers and callees of auth-call, busy, no-answer,
    forked-call and transfer: callees register first.

        netdyno sip load sip:192.0.2.1 --scenario options --rate 1k/s
        netdyno sip load sip:192.0.2.1 --scenario transfer --rate 20/s
        netdyno sip load 'sip:192.0.2.1;transport=tcp' --scenario reconnect --hold 130s --duration 150s
        netdyno sip load sip:example.net --scenario failover --dns 192.0.2.53 --max-outage 3s
        netdyno sip load sip:192.0.2.1 --scenario mine.yaml --to 1000
        netdyno sip load sip:192.0.2.1 --scenario uac.xml
        netdyno sip load sip:192.0.2.9 --scenario uas.xml --listen 192.0.2.5:5070
    """
    place = options.callee_address(listen, given) if listen else None
    lasts = options.seconds(hold, "--hold")
    read = options.read(server, given, callee=to, hold=lasts, listen=place, max_calls=max_calls)
    gate.conform(read, given, scenario)
    if place is None and (parties := PARTIES.get(scenario)):
        _run(parties(read), given)
    if scenario in PRESETS and place is None:
        _run(profile.scenario(read, {"preset": scenario.replace("-", "_")}, scenario), given)
    if place is not None and scenario == "uas":
        _run(profile.scenario(read, {"preset": scenario}, scenario), given)
    path = Path(scenario)
    if not path.suffix:
        presets = NAMES if place is None else ("uas",)
        fix = f"Use one of {', '.join(presets)}, or a file like steps.yaml"
        raise Error("ND-104-22", f"no scenario is called {scenario!r}", at="--scenario", fix=fix)
    found = scenario_file.read(path, direct=place is not None)
    for note in found.notes:
        console.note(f"{scenario}: {note}")
    read = replace(
        read,
        user=read.user or found.user,
        auth_user=read.auth_user or found.auth_user,
        password=read.password or found.password,
        callee=read.callee or found.callee,
        media=found.media,
        aka=found.aka,
        identity=found.identity,
        outbound_proxy=read.outbound_proxy or found.outbound_proxy,
    )
    document = profile.scenario(read, {"steps": found.steps}, "scenario")
    if found.table:
        document["data"] = found.table
    _run(document, given, None if path.suffix == ".xml" else path)


def _run(document: dict[str, Any], given: dict[str, Any], steps: Path | None = None) -> NoReturn:
    """Measure and judge. `steps`: the file that the scenario was read from, whose lines faults name."""
    chosen = choose.document(document, document["name"], Path())
    capture: dict[str, str] | None = {} if given["capture"] else None
    drawn, most = given["ladder"], given["trace"]
    if drawn and capture is None and most is None:
        most = 1
    if most is not None:
        capture = traced.capture(document, given, "--trace" if given["trace"] else "--ladder")
    elif drawn:
        traced.readable(document, given, "--ladder")
    wanted = choose.adjust(chosen, {}, {}, None, capture, given["threshold"] or ())

    def keep(result: Result, folder: Path) -> None:
        if most is not None:
            listens = any("port" in group["model"]["sip"] for group in document["groups"])
            traced.keep(result, folder, most, listens, "--trace" if given["trace"] else "--ladder")

    def place(leg: str, at: str) -> str:
        step = re.fullmatch(r"groups\[\d+\]\.model\.sip\.scenario\.steps(\[.*)", at) if steps else None
        if steps and step:
            line = positions.of(positions.tree(steps), step[1])
            return f"{steps}: {f'line {line[0]} column {line[1]}: ' if line else ''}steps{step[1]}"
        group = re.fullmatch(r"groups\[(\d+)\]\.target", at)
        if not group:
            return chosen.place(leg, at)
        target = str(document["groups"][int(group[1])]["target"])
        return str(document.get("targets", {}).get(target, target))

    fleets = cores.fleets(given["fleet"], given["tolerate"], wanted)
    chosen_outputs, watch = outputs(given), []
    if drawn:
        watch = [traced.LiveLadder(chosen_outputs.runs or paths.runs())]
        chosen_outputs = replace(chosen_outputs, quiet=True)
    raise typer.Exit(
        execute(wanted, chosen.folder, chosen_outputs, None, place, then=keep, fleets=fleets, watch=watch)
    )
