"""`netdyno run`: a profile, an experiment, a preset, or just a URL."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from netdyno.cli import options, port_options, values
from netdyno.cli.execute import execute
from netdyno.cli.url_options import quick, url_options
from netdyno.errors import Error
from netdyno.experiment import cores, limits, spec
from netdyno.experiment.choose import adjust, choose, renamed


@url_options(before="capture")
@options.output_options(
    "json json_stream html junit markdown csv prometheus runs store quiet", before="socket"
)
def run(
    what: Annotated[
        list[str],
        typer.Argument(help="File, preset, or URLs.", metavar="WHAT", autocompletion=values.any_preset),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the run in lists and reports. Default: the profile's, else the protocol.",
            metavar="NAME",
        ),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Point a target of the profile elsewhere.", metavar="NAME=URL")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            help="Scale the load by X, above 0. Default: 1.", metavar="X", parser=values.number("--load", 0)
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            help="Add a criterion, like 'delay.response.p99 <= 50ms'; "
            "applies to all groups unless one is named.",
            metavar="TEXT",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Repeat each trial N times, up to 10000. Default: as the experiment says, else 1.",
            metavar="N",
            parser=values.whole("--repeat", 1, 10_000),
        ),
    ] = None,
    resume: options.Resume = None,
    duration: Annotated[
        str | None,
        typer.Option(
            help="Length of the measure phase, like 30s. Default: the profile's, else 10s.",
            metavar="TIME",
            parser=values.time("--duration"),
        ),
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(
            help="Length of the warm-up, like 2s. Default: the profile's, else 2s.",
            metavar="TIME",
            parser=values.time("--warmup"),
        ),
    ] = None,
    capture: Annotated[bool, typer.Option("--capture", help="Keep packets for Wireshark.")] = False,
    capture_filter: Annotated[
        str | None, typer.Option(help="Which packets, as in pcap-filter(7). Default: all.", metavar="FILTER")
    ] = None,
    abort_on_fail: Annotated[
        bool,
        typer.Option("--abort-on-fail", help="Stop, with exit 99, once a threshold has failed for good."),
    ] = False,
    port: port_options.Port = None,
    ip: port_options.Ip = None,
    gateway: port_options.Gateway = None,
    mtu: port_options.Mtu = None,
    vlan: port_options.Vlan = None,
    offloads: port_options.Offloads = None,
    mss: port_options.Mss = None,
    window: port_options.Window = None,
    transport: Annotated[
        str | None,
        typer.Option(
            help="With --fleet: dpdk, over the DPDK ports of its hosts. Default: as the profile says.",
            metavar="dpdk",
            parser=values.one_of("--transport", "dpdk"),
        ),
    ] = None,
    fleet: options.Fleet = None,
    tolerate: options.Tolerate = 0,
    socket: options.Socket = None,
    **given: Any,
) -> None:
    """Run a load test and report pass or fail.

    WHAT is a profile or experiment (JSON or YAML), the name of a preset (`netdyno describe` lists them), or
    one or more URLs: `mqtt://`, `mqtts://`, `http://`, `https://`, `coap://`, `ping://`, `udp://`. A number
    without a unit means seconds, bytes or per second; other units are written, like 250ms, 1m30s, 1KiB, 5k/s.

    `--rate` is the total rate of requests, publishes, echo requests or datagrams over all devices.
    Connections are reused (keep-alive); requests are sent on schedule without waiting for earlier replies.
    `--open`: start flows at `--rate`, one connection each; `--closed`: send the next request when the reply
    arrives.

        netdyno run mqtt://broker:1883 --devices 100 --qos 1
        netdyno run http://10.0.0.2/ --rate 1000/s --duration 30s
        netdyno run http://10.0.0.2/ -n 1000 --devices 20
        netdyno run http://10.0.0.2/ --threshold 'delay.response.p99 <= 20ms' --threshold 'loss <= 0.1%'
        netdyno run http://10.0.0.2/login -d @login.json -H 'Content-Type: application/json'
        netdyno run mqtts://broker -t sensor/{device} -d '{"t": 21}' --user lab:secret --cacert ca.pem
        netdyno run ping://10.0.0.2 udp://10.0.0.2:7 --interval 10ms
        netdyno run iot-mixed --target broker=mqtt://10.0.0.2 --load 2 --repeat 5
        netdyno run http://10.0.0.2/ --port af_packet:veth0 --ip 10.0.0.1/24 --rate 1000/s
        netdyno run mine.yaml --json --junit verdict.xml
        netdyno run http://10.0.0.2/ --name before-upgrade
    """
    chosen = renamed(choose(what, quick(given)), name)
    trial = {"load": load, "measure": duration, "warmup": warmup}
    targets = _pairs(target or [])
    over = typed_port = port_options.port(
        {
            "port": port, "ip": ip, "gateway": gateway, "mtu": mtu, "vlan": vlan,
            "offloads": offloads, "mss": mss, "window": window,
        }
    )  # fmt: skip
    if transport:
        if over:
            fix = "Leave one of them out"
            raise Error(
                "ND-104-07", "each says where the load goes out", at="--port and --transport", fix=fix
            )
        over = cores.port(fleet)
    packets = _capture(capture, capture_filter)
    wanted = adjust(chosen, trial, targets, repeat, packets, threshold or (), over)
    typed = {f"targets.{name}": "--target" for name in targets}
    typed |= {"phases.measure": "--duration"} if duration else {}
    typed |= {"phases.warmup": "--warmup"} if warmup else {}
    typed |= {"capture.filter": "--capture-filter"} if capture_filter else {}
    for one in chosen.experiment.legs:
        profile = spec.resolve_profile(one.profile, chosen.folder)
        listed = profile.get("thresholds")
        typed |= limits.places(threshold or (), profile, len(listed) if isinstance(listed, list) else 0)

    def place(leg: str, at: str) -> str:
        return (
            (typed_port and port_options.place(at))
            or typed.get(at)
            or typed.get(at.partition("].")[0] + "]")
            or chosen.place(leg, at)
        )

    try:
        code = execute(
            wanted,
            chosen.folder,
            options.outputs(given),
            socket,
            place,
            resume=resume,
            abort_on_fail=abort_on_fail,
            fleets=cores.fleets(fleet, tolerate, wanted, socket),
        )
    except Error as e:
        if e.code == "ND-92-22" and "namespaces" in e.what:
            e.fix += ", or point a profile at a server that is there: netdyno run mqtt://HOST"
        raise
    raise typer.Exit(code)


def _pairs(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or "://" not in url:
            raise Error(
                "ND-104-22", f"{text!r} is not NAME=URL", at="--target", fix="Like broker=mqtt://10.0.0.2"
            )
        found[name] = url
    return found


def _capture(on: bool, text: str | None) -> dict[str, str] | None:
    if text is not None:
        return {"filter": text}
    return {} if on else None
