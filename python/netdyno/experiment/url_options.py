"""The options of a quick form, each written once: command line, API and errors take them from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

from netdyno import units

LOAD, REQUEST = "Load", "Request"
"""Headings of the help."""
Value = Literal["whole", "quantity", "text", "texts", "file", "flag", "switch"]
Use = Literal["any", "model", "tls", "connections"]


@dataclass(frozen=True)
class UrlOption:
    """One option."""

    name: str
    """In `Quick`, and in the API where `argument` says nothing else."""
    flags: tuple[str, ...]
    """On the command line, the one that errors name first."""
    help: str
    """What it does, in a line."""
    value: Value = "text"
    metavar: str | None = None
    least: int = 1
    """Of a whole number."""
    most: int | None = None
    unit: units.Kind | None = None
    """Of a quantity."""
    panel: str = LOAD
    use: Use = "any"
    """Who can use it: any URL, a model that has it, one with TLS, or one with connections."""
    keys: tuple[str, ...] = ()
    """Keys of a group that it sets, besides those that a model names."""
    tls: str = ""
    """The key of a group's `tls` that it sets."""
    argument: str = ""
    """In the API, where it is called otherwise."""
    searched: bool = True
    """Whether a search for a rate has it."""

    @property
    def flag(self) -> str:
        """As errors name it."""
        return self.flags[0]

    @property
    def api(self) -> str:
        """As the API calls it."""
        return self.argument or self.name


def _option(*flags: str, help: str, default: Any = None, **more: Any) -> Any:  # noqa: A002
    return field(default=default, metadata={"flags": flags, "help": help, **more})


@dataclass(frozen=True)
class UrlOptions:
    """Options of `netdyno run URL`; None: the protocol's default."""

    devices: int | None = _option(
        "--devices",
        help="URLs: virtual devices, 1 or more. Default: 10 (ping, udp: 1), with --open 20 times that. With "
        "--rate: 1; HTTP and MQTT: as many as it needs.",
        value="whole",
        metavar="N",
        keys=("devices",),
    )
    rate: str | None = _option(
        "--rate",
        help="URLs: messages per second over all devices, like 500 or 5k/s. Default: by --interval; HTTP to "
        "a server on this machine 100/s.",
        value="quantity",
        unit=units.RATE,
        metavar="RATE",
        keys=("load.open.rate", "rate"),
    )
    interval: str | None = _option(
        "--interval",
        help="URLs: time between messages of a device, like 100ms. Default: 1s; udp 1ms; HTTP 0s, the next "
        "request when the reply arrives.",
        value="quantity",
        unit=units.TIME,
        metavar="TIME",
        keys=("interval",),
        searched=False,
    )
    requests: int | None = _option(
        "--requests",
        "--messages",
        "-n",
        help="URLs: send exactly N messages over all devices, without a warm-up, then end.",
        value="whole",
        metavar="N",
        keys=("total",),
        searched=False,
    )
    count: int | None = _option(
        "--count",
        help="URLs: messages per flow; flows repeat until the duration is over. 0: no end. "
        "Default: 0; with --open or --connection-per-request 1. See --requests.",
        value="whole",
        least=0,
        metavar="N",
        keys=("count", "requests"),
        searched=False,
    )
    qos: int | None = _option(
        "--qos",
        help="MQTT: quality of service, 0, 1 or 2. Default: 1.",
        value="whole",
        least=0,
        most=2,
        metavar="N",
        panel=REQUEST,
        use="model",
    )
    size: str | None = _option(
        "--size",
        help="URLs: bytes of payload, like 64 or 1KiB. Default: as long as --data; ping 56B, udp 64B.",
        value="quantity",
        unit=units.SIZE,
        metavar="SIZE",
        keys=("size",),
    )
    open: bool | None = _option(
        "--open/--closed",
        help="URLs: --open starts flows at --rate, one connection each; --closed sends the next request when "
        "the reply arrives.",
        value="switch",
        argument="open_loop",
        searched=False,
    )
    source: tuple[str, ...] = _option(
        "--source",
        help="URLs: local address or range to send from.",
        value="texts",
        default=(),
        metavar="ADDRESS",
        keys=("source",),
    )
    insecure: bool = _option(
        "--insecure",
        "-k",
        help="TLS: accept any certificate.",
        value="flag",
        default=False,
        panel=REQUEST,
        use="tls",
        tls="insecure",
    )
    connection_per_request: bool = _option(
        "--connection-per-request",
        help="HTTP, MQTT: a new connection for each message.",
        value="flag",
        default=False,
        use="connections",
        searched=False,
    )
    method: str | None = _option(
        "--method",
        "-X",
        help="HTTP, CoAP: request method. Default: GET, with --data POST.",
        metavar="METHOD",
        panel=REQUEST,
        use="model",
    )
    header: tuple[str, ...] = _option(
        "--header",
        "-H",
        help="HTTP: add a header field.",
        value="texts",
        default=(),
        metavar="'NAME: VALUE'",
        panel=REQUEST,
        use="model",
        argument="headers",
    )
    data: tuple[str, ...] = _option(
        "--data",
        "-d",
        help="HTTP, CoAP: body, sent by POST; MQTT: payload. @FILE reads a file, @- standard input.",
        value="texts",
        default=(),
        metavar="TEXT|@FILE",
        panel=REQUEST,
        use="model",
    )
    topic: str | None = _option(
        "--topic",
        "-t",
        help="MQTT: topic to publish to. Default: nd/{device}.",
        metavar="TOPIC",
        panel=REQUEST,
        use="model",
    )
    user: str | None = _option(
        "--user",
        "-u",
        help="HTTP Basic, MQTT: user name and password.",
        metavar="NAME:PASSWORD",
        panel=REQUEST,
        use="model",
    )
    cacert: str | None = _option(
        "--cacert",
        help="TLS: trust the CA certificates in this file (PEM). Default: public authorities.",
        value="file",
        metavar="FILE",
        panel=REQUEST,
        use="tls",
        tls="ca",
    )
    cert: str | None = _option(
        "--cert",
        help="TLS: present the client certificate in this file (PEM).",
        value="file",
        metavar="FILE",
        panel=REQUEST,
        use="tls",
        tls="cert",
    )
    key: str | None = _option(
        "--key",
        help="TLS: key of --cert (PEM); default: in the same file.",
        value="file",
        metavar="FILE",
        panel=REQUEST,
        use="tls",
        tls="key",
    )

    def set_options(self) -> list[UrlOption]:
        """The options that say something."""
        return [one for one in OPTIONS.values() if getattr(self, one.name) != DEFAULTS[one.name]]


def _url_option(one: Field[Any]) -> UrlOption:
    return UrlOption(one.name, **one.metadata)


OPTIONS: Mapping[str, UrlOption] = {one.name: _url_option(one) for one in fields(UrlOptions)}
"""By their names."""
DEFAULTS: Mapping[str, Any] = {one.name: one.default for one in fields(UrlOptions)}
"""What they are when nothing is said."""


def flag(key: str, keys: Mapping[str, str]) -> str | None:
    """The option that sets a key of a group, or a parameter of its model; `keys`: option → parameter."""
    first = key.partition(".")[0]
    for one in OPTIONS.values():
        if key in one.keys or first in one.keys or (one.tls and key == f"tls.{one.tls}"):
            return one.flag
        if one.use == "model" and keys.get(one.name) == first:
            return one.flag
    return None
