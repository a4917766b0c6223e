"""`netdyno bench`: look for the highest load that meets a goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from netdyno.cli import bench_run, options, port_options, values
from netdyno.cli.options import Function, insert, parameter
from netdyno.cli.url_options import url_options
from netdyno.cli.verb import Verb, Verbs

app = typer.Typer(
    name="bench",
    cls=Verbs,
    no_args_is_help=True,
    help="Find the highest load that meets a goal, and what happens there (RFC 2544, 9004, 9971).",
    rich_markup_mode="markdown",
)


def _what(about: str) -> Any:
    return typer.Argument(help=about, metavar="WHAT", autocompletion=values.any_preset)


What = Annotated[str, _what("Profile, preset, or experiment with one leg.")]
WhatOrUrl = Annotated[str, _what("Profile, preset, experiment with one leg, or a URL.")]

PARAMETERS = {
    one.name: one
    for one in (
        parameter("topology", options.Topology),
        parameter("load", options.Load),
        parameter("goal", options.Goals, "ndr"),
        parameter("loss", options.LossRatio, 0.005),
        parameter("threshold", options.Threshold),
        parameter("step", options.Step, 0.1),
        parameter("at", options.At),
        parameter("resolution", options.Resolution, 0.005),
        parameter("sizes", options.Sizes),
        parameter("objects", options.Objects),
        parameter("per_connection", options.PerConnection),
        parameter("strategy", options.Strategy, "binary"),
        parameter("duration", options.Duration),
        parameter("repeat", options.Repeat),
        parameter("resume", options.Resume),
        parameter("port", port_options.Port),
        parameter("ip", port_options.Ip),
        parameter("gateway", port_options.Gateway),
        parameter("mtu", port_options.Mtu),
        parameter("vlan", port_options.Vlan),
        parameter("offloads", port_options.Offloads),
        parameter("mss", port_options.Mss),
        parameter("window", port_options.Window),
        parameter("fleet", options.Fleet),
        parameter("tolerate", options.Tolerate, 0),
        parameter("json", options.ResultJson, False),
        parameter("html", options.Html),
        parameter("junit", options.Junit),
        parameter("markdown", options.Markdown),
        parameter("csv", options.Csv),
        parameter("runs", options.Runs),
        parameter("dry_run", options.DryRun, False),
        parameter("quiet", options.Quiet, False),
    )
}
"""Options of all verbs, in the order of the help."""
PORT = "port ip gateway mtu vlan offloads mss window"
"""Of verbs whose loads are devices with connections."""
COMMON = "topology load duration resume json html markdown runs dry_run quiet"


def _add(
    kind: str,
    names: str,
    about: str,
    what: Any = What,
    decorate: Callable[[Function], Function] = lambda verb: verb,
    **defaults: Any,
) -> None:
    """Add the verb of a kind of search with these options besides those of all verbs."""

    def verb(what: str, **given: Any) -> None:
        raise typer.Exit(bench_run.run(kind, what, given))

    chosen = set(f"{COMMON} {names}".split())
    own = [
        one.replace(default=defaults.get(name, one.default))
        for name, one in PARAMETERS.items()
        if name in chosen
    ]
    verb.__annotations__ = {"what": what}
    verb.__doc__ = about
    app.command(kind, cls=Verb)(decorate(insert(verb, own)))


_add(
    "throughput",
    "goal loss resolution sizes strategy repeat",
    """Find the highest load without frame loss, or with at most a given share of loss.

    The profile's load is the highest tried. For each frame size the table has the highest load without loss
    in any trial, and an interval for the load at which half of the trials lose frames. If these are far
    apart, the DUT is not repeatable, and a line says so. Trials disturbed by the test machine are repeated
    and counted separately. A load that the generator cannot offer is a limit of the generator, not of the
    DUT.

        netdyno bench throughput imix --sizes rfc2544 --duration 60s
        netdyno bench throughput two-port.yaml --goal ndr,pdr --strategy mlr --dry-run
        netdyno bench throughput examples/bench-policer.yaml --sizes 64 --json
    """,
)
_add(
    "loss",
    "step sizes",
    """Loss over load: 100 %, 90 %, … until two loads in a row lose nothing (RFC 2544 §26.3).

    The load of the profile is 100 %; `--load` scales it.

        netdyno bench loss imix --sizes 64,1518 --step 5%
    """,
)
_add(
    "back-to-back",
    "resolution sizes repeat",
    """Find the longest burst at the highest load without frame loss, and the buffer size (RFC 9004).

    The throughput is found first. A burst lasts at most as long as a trial.

        netdyno bench back-to-back imix --sizes 64 --duration 2s
    """,
)
_add(
    "latency",
    "at resolution sizes strategy repeat",
    """Latency at the throughput, or at a share of the highest load (RFC 2544 §26.2, RFC 8219 §7).

    RFC 2544 asks for 20 trials of 120 s; the preceding search uses trials a quarter as long.

        netdyno bench latency imix --sizes 64 --duration 120s --repeat 20
        netdyno bench latency imix --at 50% --repeat 3
    """,
)
_add(
    "recovery",
    "at resolution sizes strategy repeat",
    """Measure how long frames are lost after an overload (RFC 2544 §26.5).

    The load is 110 % of the throughput for the length of a trial, then 50 %. The recovery time ends at the
    last loss; its resolution is an interval of the series.

        netdyno bench recovery imix --sizes 64 --duration 60s --repeat 3
    """,
)
_add(
    "reset",
    "at resolution sizes strategy repeat",
    """Measure the outage after a restart of the DUT (RFC 6201).

    The experiment has one DUT. The outage is the number of lost frames divided by their rate.

        netdyno bench reset router.yaml --at 100% --duration 5s --repeat 3
    """,
)
_add(
    "rate",
    f"threshold resolution repeat {PORT} fleet tolerate junit csv",
    """Find the highest load at which every threshold passes.

    The load is flows per second in an open loop and devices in a closed loop, up to the profile's load or
    `--load` times it. For a URL it is messages per second over keep-alive connections, up to `--rate`; its
    thresholds are no errors, no loss, and those of `--threshold`.

        netdyno bench rate http --load 10 --duration 5s
        netdyno bench rate http://10.0.0.2/ --rate 20k/s --threshold 'delay.response.p99 < 20ms'
    """,
    WhatOrUrl,
    url_options(
        before="json",
        searched=True,
        words={"rate": "URLs: the highest rate to try, over all devices, like 10k/s."},
    ),
    resolution=0.02,
)

_RATE = "URLs: the highest rate to try, like 10k/s: {} per second."
_POOL = "URLs: connections at a time at most. Default: as many as --rate opens in a second, 200 to 20,000."


def _application(kind: str, names: str, about: str, rate: str, devices: str = _POOL) -> None:
    """Add the verb of a search of an application."""
    said = {"rate": rate, "devices": devices}
    urls = url_options(before="json", searched=True, words=said)
    _add(kind, f"threshold resolution repeat {PORT} {names}", about, WhatOrUrl, urls, resolution=0.02)


_application(
    "connections",
    "objects",
    """Find how many connections can be opened in a second, each for one transaction (RFC 9411 §7.2, 7.6).

    A load is carried if less than 0.001 % of its transactions fail, and less than 0.001 % of its connections
    are reset. The first load is a tenth of the highest; it is doubled until one fails. Of an experiment with
    several legs, these are measured in turns and stand beside each other.

        netdyno bench connections http://10.0.0.2/1024 --rate 20k/s --duration 60s
        netdyno bench connections https://10.0.0.2/1024 --rate 5k/s --objects rfc9411-connections -k
        netdyno bench connections examples/http-through-nat.yaml --duration 10s
    """,
    _RATE.format("connections"),
)
_application(
    "concurrent",
    "objects",
    """Find how many connections can be open at a time, each of them in use (RFC 9411 §7.5, 7.9).

    All connect during the warm-up and stay; each asks again while it is measured. A load is carried if its
    transactions succeed and every connection was kept, but for less than 0.001 %.

        netdyno bench concurrent http://10.0.0.2/1024 --devices 100000 --duration 60s
    """,
    "Refused here: --devices is the highest load.",
    "URLs: the most connections to try.",
)
_application(
    "transactions",
    "objects per_connection",
    """Find how many transactions a second carries, one on each connection and ten (RFC 9411 §7.3).

    Connections are opened at the rate that this takes, and closed after their last transaction.

        netdyno bench transactions http://10.0.0.2/1024 --rate 100k/s --duration 60s
        netdyno bench transactions http://10.0.0.2/ --rate 100k/s --per-connection 1,10,100
    """,
    _RATE.format("transactions"),
)
_application(
    "object-throughput",
    "objects per_connection",
    """Find the throughput by size of what is asked for (RFC 9411 §7.3, 7.7).

    The number at the end of the path is the size in bytes, as `netdyno serve http` and the driver nginx take
    it; {object} stands for it elsewhere in a path. Default: 1, 16, 64 and 256 KiB and a mix of ten sizes.

        netdyno bench object-throughput http://10.0.0.2/1024 --rate 50k/s --duration 60s
        netdyno bench object-throughput http://10.0.0.2/1024 --rate 50k/s --objects 2KiB,8KiB,1MiB
    """,
    _RATE.format("transactions"),
)
_application(
    "transaction-latency",
    "at objects per_connection",
    """Time to the first and to the last byte at half of the highest load (RFC 9411 §7.4, 7.8).

    The highest load is found first, by trials of a quarter of the length; `--at 50%` takes half of the load
    that is given in place of it.

        netdyno bench transaction-latency http://10.0.0.2/1024 --rate 50k/s --duration 60s
    """,
    _RATE.format("transactions"),
)
