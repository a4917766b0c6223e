"""`netdyno run`: a profile, an experiment, a preset, or just a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdyno.cli import values
from netdyno.cli.execute import Outputs, execute
from netdyno.core.address import Address
from netdyno.errors import Error
from netdyno.experiment import quick
from netdyno.experiment.choose import adjust, choose

LOAD, REQUEST, OUTPUT = "Load", "Request", "Output"


def run(
    what: Annotated[
        list[str],
        typer.Argument(help="File, preset, or URLs.", metavar="WHAT", autocompletion=values.any_preset),
    ],
    target: Annotated[
        list[str] | None, typer.Option(help="Point a target of the profile elsewhere.", metavar="NAME=URL")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(help="Scale the load by X, above 0.", metavar="X", parser=values.number("--load", 0)),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge by this too, like 'delay.response.p99 <= 50ms'; of each group where none is named.",
            metavar="TEXT",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Repeat each trial N times, up to 10000.",
            metavar="N",
            parser=values.whole("--repeat", 1, 10_000),
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Take over the valid trials of this run, which ended early.",
            metavar="RUN",
            autocompletion=values.stored_run,
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            help="Length of the measure phase, like 30s.", metavar="TIME", parser=values.time("--duration")
        ),
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(help="Length of the warm-up, like 2s.", metavar="TIME", parser=values.time("--warmup")),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            help="URLs: virtual devices, 1 or more.",
            metavar="N",
            parser=values.whole("--devices"),
            rich_help_panel=LOAD,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help="URLs: messages per second over all devices, like 500 or 5k/s.",
            metavar="RATE",
            parser=values.rate("--rate"),
            rich_help_panel=LOAD,
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            help="URLs: time between messages of a device, like 100ms.",
            metavar="TIME",
            parser=values.time("--interval"),
            rich_help_panel=LOAD,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            help="URLs: messages per flow; 0: no end.",
            metavar="N",
            parser=values.whole("--count", 0),
            rich_help_panel=LOAD,
        ),
    ] = None,
    qos: Annotated[
        int | None,
        typer.Option(
            help="MQTT: quality of service, 0, 1 or 2.",
            metavar="N",
            parser=values.whole("--qos", 0, 2),
            rich_help_panel=REQUEST,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="URLs: bytes of payload, like 64 or 1KiB.",
            metavar="SIZE",
            parser=values.size("--size"),
            rich_help_panel=LOAD,
        ),
    ] = None,
    open_loop: Annotated[
        bool | None,
        typer.Option(
            "--open/--closed",
            help="URLs: flows begin at --rate, each on a connection of its own, or one after the other.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    connection_per_request: Annotated[
        bool,
        typer.Option(
            "--connection-per-request",
            help="HTTP, MQTT: a new connection for each message.",
            rich_help_panel=LOAD,
        ),
    ] = False,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="URLs: local address or range to send from.", metavar="ADDRESS", rich_help_panel=LOAD
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", "-X", help="HTTP, CoAP: request method.", metavar="METHOD", rich_help_panel=REQUEST
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            help="HTTP: add a header field.",
            metavar="'NAME: VALUE'",
            rich_help_panel=REQUEST,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            help="HTTP, CoAP: body, sent by POST; MQTT: payload. @FILE reads a file, @- standard input.",
            metavar="TEXT|@FILE",
            rich_help_panel=REQUEST,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", help="MQTT: topic to publish to.", metavar="TOPIC", rich_help_panel=REQUEST
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            help="HTTP Basic, MQTT: user name and password.",
            metavar="NAME:PASSWORD",
            rich_help_panel=REQUEST,
        ),
    ] = None,
    cacert: Annotated[
        Path | None,
        typer.Option(
            "--cacert",
            help="TLS: trust the CA certificates in this file (PEM).",
            metavar="FILE",
            rich_help_panel=REQUEST,
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            help="TLS: show the client certificate in this file (PEM).",
            metavar="FILE",
            rich_help_panel=REQUEST,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="TLS: key of --cert (PEM); if left out, it is in that file.",
            metavar="FILE",
            rich_help_panel=REQUEST,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", "-k", help="TLS: accept any certificate.", rich_help_panel=REQUEST)
    ] = False,
    capture: Annotated[bool, typer.Option("--capture", help="Keep packets for Wireshark.")] = False,
    capture_filter: Annotated[
        str | None, typer.Option(help="Which packets, as in pcap-filter(7).", metavar="FILTER")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Result as one JSON document on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    json_stream: Annotated[
        bool, typer.Option("--json-stream", help="Events as NDJSON on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Copy the report here.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Verdict for CI servers.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Copy series and flows here.", metavar="DIR", rich_help_panel=OUTPUT)
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Serve metrics, or write them.", metavar="ADDR:PORT|FILE", rich_help_panel=OUTPUT),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder for run folders.", metavar="DIR", rich_help_panel=OUTPUT)
    ] = None,
    store: Annotated[bool, typer.Option(help="Enter the run into the store.", rich_help_panel=OUTPUT)] = True,
    abort_on_fail: Annotated[
        bool,
        typer.Option("--abort-on-fail", help="Stop, with exit 99, once a threshold has failed for good."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No live view.", rich_help_panel=OUTPUT)
    ] = False,
    socket: Annotated[
        Address | None,
        typer.Option(
            help="Use the daemon at this Unix socket or tcp://HOST:PORT.",
            metavar="ADDRESS",
            parser=values.daemon("--socket"),
        ),
    ] = None,
) -> None:
    """Run a load and judge what came of it.

    WHAT is a profile or experiment (JSON or YAML), the name of a preset (`netdyno describe` lists them), or
    one or more URLs: `mqtt://`, `mqtts://`, `http://`, `https://`, `ping://`, `udp://`. A bare number after
    an option means seconds, bytes or per second; other units are written, like 250ms, 1KiB, 5k/s.

    `--rate` is that of requests, publishes, echo requests or datagrams, over all devices together.
    Connections are kept, and each sends its share on a schedule of its own that does not wait for answers;
    with `--open` or `--connection-per-request` each message has a connection of its own.

        netdyno run mqtt://broker:1883 --devices 100 --qos 1
        netdyno run http://10.0.0.2/512 --rate 1000/s --duration 30s
        netdyno run http://10.0.0.2/ --threshold 'delay.response.p99 <= 20ms' --threshold 'loss <= 0.1%'
        netdyno run http://10.0.0.2/login -d @login.json -H 'Content-Type: application/json'
        netdyno run mqtts://broker -t sensor/{device} -d '{"t": 21}' --user lab:secret --cacert ca.pem
        netdyno run ping://10.0.0.2 udp://10.0.0.2:7 --interval 10ms
        netdyno run iot-mixed --target broker=mqtt://10.0.0.2 --load 2 --repeat 5
        netdyno run mine.yaml --json --junit verdict.xml
    """
    options = quick.Quick(
        devices,
        rate,
        interval,
        count,
        qos,
        size,
        open_loop,
        tuple(source or ()),
        insecure,
        connection_per_request,
        method,
        tuple(header or ()),
        tuple(data or ()),
        topic,
        user,
        *(str(path.absolute()) if path else None for path in (cacert, cert, key)),
    )
    chosen = choose(what, options)
    trial = {"load": load, "measure": duration, "warmup": warmup}
    targets = _pairs(target or [])
    wanted = adjust(chosen, trial, targets, repeat, _capture(capture, capture_filter), threshold or ())
    given = {f"targets.{name}": "--target" for name in targets}
    given |= {"phases.measure": "--duration"} if duration else {}
    given |= {"phases.warmup": "--warmup"} if warmup else {}
    given |= {"capture.filter": "--capture-filter"} if capture_filter else {}

    def place(leg: str, at: str) -> str:
        return given.get(at) or chosen.place(leg, at)

    outputs = Outputs(json, json_stream, html, junit, csv, prometheus, runs, quiet, store)
    try:
        code = execute(
            wanted, chosen.folder, outputs, socket, place, resume=resume, abort_on_fail=abort_on_fail
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
