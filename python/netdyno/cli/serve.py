"""`netdyno serve`: a server to test against, with counters."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry

from netdyno import config, files, units
from netdyno.cli import console, port_options, values
from netdyno.cli.options import Json
from netdyno.core.server import Server
from netdyno.errors import HOST_LOST, PASS, Error
from netdyno.export import prometheus
from netdyno.export.server_metrics import ServerMetrics

PORTS = {
    "http": (8080, 8443),
    "mqtt": (1883, 8883),
    "coap": (5683, 0),
    "stream": (7, 0),
    "script": (9000, 9443),
}
"""Default ports, without TLS and with it."""
ONLY: dict[str, tuple[str, ...]] = {
    "--size": ("http", "coap"),
    "--errors": ("http", "mqtt", "coap"),
    "--error-status": ("http",),
    "--notify": ("coap",),
    "--sink": ("stream",),
    "--script": ("script",),
    "--tls-cert": ("http", "mqtt", "script"),
    "--tls-self-signed": ("http", "mqtt", "script"),
}
"""Protocols of options that not all have."""


def serve(
    protocol: Annotated[
        str,
        typer.Argument(
            help="http, mqtt, coap, stream or script.",
            metavar="PROTOCOL",
            parser=values.one_of("PROTOCOL", *PORTS),
        ),
    ],
    listen: Annotated[
        str | None,
        typer.Option(
            help="Default 127.0.0.1 and 8080 (http), 1883 (mqtt), 5683 (coap), 7 (stream), 9000 (script); "
            "TLS 8443, 8883, 9443. With --port it must be given.",
            metavar="ADDRESS:PORT",
            parser=_listen,
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            help="Serve on this DPDK port, which gets the address of --listen, like af_packet:veth1.",
            metavar="DEVICE",
        ),
    ] = None,
    prefix: Annotated[
        int | None,
        typer.Option(
            help="With --port: prefix length of its network.",
            metavar="N",
            parser=values.whole("--prefix", 0, 128),
        ),
    ] = None,
    gateway: Annotated[
        str | None,
        typer.Option(help="With --port and --prefix: router to other networks.", metavar="ADDRESS"),
    ] = None,
    mtu: Annotated[
        int | None,
        typer.Option(
            help="With --port: largest IP packet, bytes. Default: what the device takes, at most 1500.",
            metavar="BYTES",
            parser=values.whole("--mtu", 576, 9600),
        ),
    ] = None,
    vlan: Annotated[
        int | None,
        typer.Option(
            help="With --port: serve in this VLAN. Default: without a tag.",
            metavar="ID",
            parser=values.whole("--vlan", 1, 4094),
        ),
    ] = None,
    offloads: port_options.Offloads = None,
    mss: port_options.Mss = None,
    window: port_options.Window = None,
    workers: Annotated[
        int,
        typer.Option(
            help="http, coap, script: threads; with --port each has a queue of it.",
            metavar="N",
            parser=values.whole("--workers", 1, 64),
        ),
    ] = 1,
    size: Annotated[
        str | None,
        typer.Option(
            help="http, coap: bytes of a body where the path ends in no number. Default: 2B.",
            metavar="SIZE",
            parser=values.size("--size"),
        ),
    ] = None,
    delay: Annotated[
        str,
        typer.Option(help="Time before each reply.", metavar="TIME", parser=values.time("--delay")),
    ] = "0s",
    errors: Annotated[
        float | None,
        typer.Option(
            help="Share of requests (http, coap) or connections (mqtt) to refuse. Default: none.",
            metavar="SHARE",
            parser=values.share("--errors"),
        ),
    ] = None,
    error_status: Annotated[
        int | None,
        typer.Option(
            help="http: status of refused requests. Default: 503.",
            metavar="N",
            parser=values.whole("--error-status", 400, 599),
        ),
    ] = None,
    drop: Annotated[
        float | None,
        typer.Option(
            help="Share of requests, messages or datagrams to leave unanswered. Default: none.",
            metavar="SHARE",
            parser=values.share("--drop"),
        ),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            help="coap: time between two notifications of an observer. Default: 1s.",
            metavar="TIME",
            parser=values.time("--notify"),
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            help="script: the steps to play to each connection (YAML or JSON). Default: none.", metavar="FILE"
        ),
    ] = None,
    sink: Annotated[bool, typer.Option("--sink", help="stream: send nothing back.")] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of both shares.", metavar="N", parser=values.whole("--seed", 0))
    ] = 0,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="Serve TLS with this certificate chain (PEM). Default: no TLS.", metavar="FILE"),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(help="With --tls-cert: its key (PEM). Default: in the same file.", metavar="FILE"),
    ] = None,
    tls_self_signed: Annotated[
        Path | None,
        typer.Option(
            help="Serve TLS with a new certificate for --listen, and write it here (PEM). Default: no TLS.",
            metavar="FILE",
        ),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="With TLS: require client certificates of these CAs (PEM). Default: none.", metavar="FILE"
        ),
    ] = None,
    tls_resumption: Annotated[
        bool,
        typer.Option("--tls-resumption/--no-tls-resumption", help="With TLS: resume sessions."),
    ] = True,
    duration: Annotated[
        str | None,
        typer.Option(
            help="End after this time. Default: at Ctrl-C or SIGTERM.",
            metavar="TIME",
            parser=values.time("--duration"),
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--prometheus", help="Serve counters to Prometheus.", metavar="ADDRESS:PORT"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve HTTP, MQTT, CoAP, UDP streams or a script to test against.

    http and coap answer any method; GET of `/512` has a body of 512 bytes. mqtt is a broker for 3.1.1 and
    5.0, QoS 0 to 2. stream sends back the datagrams of udp:// groups, and says what was lost, late or twice.
    script plays steps (send, expect, delay, repeat) to each TCP connection, as the model of that name does.
    All can answer late or leave a share unanswered. They count what they receive and send, as a witness
    of a load, and print that at their end: Ctrl-C, SIGTERM, SIGHUP or --duration. A server that ends
    by itself, as when its port is gone, is exit code 91.

        netdyno serve http --listen 192.0.2.1:80 --workers 4
        netdyno serve mqtt --delay 20ms --drop 1%
        netdyno serve http --errors 5% --duration 60s --json
        netdyno serve mqtt --listen 10.0.0.2:1883 --port af_packet:veth1
        netdyno serve http --tls-self-signed server.pem
        netdyno serve coap --delay 500ms --notify 2s
        netdyno serve stream --listen 192.0.2.1:9000 --sink
        netdyno serve script --script examples/script-server.yaml
    """
    given = {
        "--size": size is not None,
        "--errors": errors is not None,
        "--error-status": error_status is not None,
        "--notify": notify is not None,
        "--sink": sink,
        "--script": script is not None,
        "--tls-cert": tls_cert is not None,
        "--tls-self-signed": tls_self_signed is not None,
    }
    for option, protocols in ONLY.items():
        if given[option] and protocol not in protocols:
            fix = f"Leave it out, or serve {' or '.join(protocols)}"
            raise Error("ND-104-74", f"{protocol} has no {option}", fix=fix)
    if protocol == "script" and script is None:
        raise Error("ND-104-74", "script has no steps to play", fix="Name their file with --script")
    more = {
        "gateway": gateway, "mtu": mtu, "vlan": vlan, "offloads": offloads, "mss": mss, "window": window,
    }  # fmt: skip
    of_port = {"--prefix": prefix} | {f"--{key}": value for key, value in more.items()}
    tls = _tls(tls_cert, tls_key, tls_self_signed, tls_client_ca, tls_resumption)
    settings: dict[str, Any] = {
        "protocol": protocol,
        "listen": listen or f"127.0.0.1:{PORTS[protocol][tls is not None]}",
        "workers": workers,
        "size": int(units.bound(size or "2B")),
        "delay_ns": round(units.seconds(delay) * 1e9),
        "error_share": errors or 0.0,
        "error_status": error_status or 503,
        "drop_share": drop or 0.0,
        "notify_ns": round(units.seconds(notify or "1s") * 1e9),
        "sink": sink,
        "seed": seed,
    }
    if script:
        settings["script"] = config.read(script)
    if tls:
        settings["tls"] = tls
    if port and listen is None:
        what = "a DPDK port has no address of its own to listen at"
        fix = f"Add --listen, like --listen 10.0.0.2:{PORTS[protocol][tls is not None]}"
        raise Error("ND-104-74", what, at="--port", fix=fix)
    if port:
        settings["port"] = _port(settings["listen"], port, prefix, **more)
    elif needless := [name for name, value in of_port.items() if value is not None]:
        option = needless[0]
        raise Error(
            "ND-104-74",
            f"{option} is for a DPDK port",
            fix="Name one with --port",
        )
    if tls_self_signed:
        files.check_place(tls_self_signed)
    exported = ServerMetrics(protocol)
    if metrics:
        registry = CollectorRegistry()
        registry.register(exported)
        prometheus.serve(metrics, registry)
    server = Server(settings, exported.update, lambda words: console.note(f"warning: {words}"))
    lost: Error | None = None
    with server:
        if tls_self_signed:
            files.write(tls_self_signed, server.certificate, shared=True)
        words = f"{protocol}{' over TLS' if tls else ''} on {server.address}"
        try:
            server.serve(units.seconds(duration) if duration else None, lambda: console.note(words))
        except Error as e:
            if e.exit_code != HOST_LOST:
                raise
            lost = e
    counters = dict(server.counters)
    if as_json:
        console.document({"protocol": protocol, "counters": counters})
    else:
        rows = [(name.replace("_", " "), f"{value:,}") for name, value in counters.items()]
        console.table(["counter", "value"], rows, right=["value"])
    if lost:
        raise lost
    raise typer.Exit(PASS)


def _tls(
    cert: Path | None, key: Path | None, made: Path | None, client_ca: Path | None, resumption: bool
) -> dict[str, Any] | None:
    """Settings of TLS; `None`: there is none."""
    if cert and made:
        raise Error(
            "ND-104-74", "--tls-cert and --tls-self-signed are two certificates", fix="Give one of both"
        )
    if key and not cert:
        raise Error("ND-104-74", "--tls-key is the key of --tls-cert", fix="Name the certificate, too")
    if not (cert or made):
        if client_ca or not resumption:
            option = "--tls-client-ca" if client_ca else "--no-tls-resumption"
            fix = "Give --tls-cert or --tls-self-signed"
            raise Error("ND-104-74", f"{option} is for a server with TLS", fix=fix)
        return None
    paths = {"cert": cert, "key": key, "client_ca": client_ca}
    named = {name: str(path) for name, path in paths.items() if path}
    return {**named, "self_signed": made is not None, "resumption": resumption}


def _listen(text: str) -> str:
    """`ADDRESS:PORT`, an IPv6 address in brackets."""
    address, colon, port = text.rpartition(":")
    try:
        version = ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).version
        good = colon and port.isdigit() and int(port) < 1 << 16 and address.startswith("[") == (version == 6)
    except ValueError:
        good = False
    if not good:
        fix = "Like 192.0.2.1:8080, or [2001:db8::1]:8080"
        raise Error("ND-104-22", f"{text!r} is not ADDRESS:PORT", at="--listen", fix=fix)
    return text


def _port(listen: str, device: str, prefix: int | None, **more: Any) -> dict[str, Any]:
    """A DPDK port with the address that is listened at."""
    address = listen.rpartition(":")[0].strip("[]")
    ip = address if prefix is None else f"{address}/{prefix}"
    if gateway := more.get("gateway"):
        _check_gateway(gateway, ip, prefix)
    return {"name": "server", "device": device, **port_options.settings({**more, "ip": ip})}


def _check_gateway(gateway: str, ip: str, prefix: int | None) -> None:
    """A router is in the port's network, or has a link-local address."""
    if prefix is None:
        what, fix = "a gateway is for what is outside of the port's network", "Add --prefix"
        raise Error("ND-104-74", what, at="--gateway", fix=fix)
    try:
        router = ipaddress.ip_address(gateway)
    except ValueError as e:
        raise Error("ND-104-22", str(e), at="--gateway", fix="Give an IP address") from e
    network = ipaddress.ip_interface(ip).network
    if not (router in network or router.is_link_local):
        fix = "Give the router's address in the port's own network"
        raise Error("ND-104-74", f"{gateway} is no neighbour of {ip}", at="--gateway", fix=fix)
