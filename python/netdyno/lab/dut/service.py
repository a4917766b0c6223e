"""Our own servers (`netdyno serve`) as devices under test."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from netdyno.core.daemon import program
from netdyno.lab.dut.base import Settings, url_host
from netdyno.lab.dut.counting_server import CountingServer


class ServiceOptions(Settings):
    """What all have."""

    delay: float = Field(default=0.0, ge=0, le=3600)
    """Seconds before each reply."""
    drop_share: float = Field(default=0.0, ge=0, le=1)
    """Share of requests (HTTP, CoAP), messages (MQTT) or datagrams (streams) that are left unanswered."""
    seed: int = Field(default=0, ge=0, le=1 << 63)
    """Seed of the shares."""
    device: str | None = None
    """DPDK port that it serves on, like `af_packet:veth1`; needs `ip`. Default: the kernel's sockets."""
    ip: str | None = None
    """Address on that port, with a prefix or without: `10.0.0.2/24`."""
    mtu: int | None = Field(default=None, ge=576, le=9600)
    """Largest IP packet on that port, bytes; needs `device`. Default: what the device takes, at most 1500."""

    @model_validator(mode="after")
    def _port_fits(self) -> Self:
        """A port has an address, and only a port has one."""
        if (self.device is None) != (self.ip is None):
            raise ValueError("device and ip belong together: name both or neither")
        if self.mtu is not None and self.device is None:
            raise ValueError("mtu is of device: the kernel's interfaces have theirs from the topology")
        return self

    def server(self) -> dict[str, Any]:
        """Settings of the server: options of the same name, and those that it has in another form."""
        same = {
            name: value
            for name, value in self.model_dump().items()
            if name not in ("port", "delay", "notify", "device", "ip", "mtu") and not name.startswith("tls")
        }
        return {**same, "delay_ns": round(self.delay * 1e9)}


class TlsOptions(ServiceOptions):
    """Options of servers over TCP, with TLS or without."""

    tls: bool = False
    """Serve TLS; without `tls_cert`, with a new self-signed certificate (groups: `tls: {insecure: true}`)."""
    tls_cert: str | None = None
    """File with the certificate and those of the CAs between (PEM), absolute path. Needs `tls`."""
    tls_key: str | None = None
    """File with its key (PEM), absolute path. Default: that of `tls_cert`."""
    tls_client_ca: str | None = None
    """File with CA certificates (PEM), absolute path: each client needs a certificate of one. Needs `tls`."""
    tls_resumption: bool = True
    """Resume TLS sessions."""

    @model_validator(mode="after")
    def _tls_fits(self) -> Self:
        """TLS files only with TLS."""
        if not self.tls and (self.tls_cert or self.tls_client_ca or not self.tls_resumption):
            raise ValueError("tls_cert, tls_client_ca and tls_resumption need tls: true")
        if self.tls_key and not self.tls_cert:
            raise ValueError("tls_key is the key of tls_cert: name the certificate, too")
        return self

    def server(self) -> dict[str, Any]:
        """With those of TLS."""
        if not self.tls:
            return super().server()
        paths = {"cert": self.tls_cert, "key": self.tls_key, "client_ca": self.tls_client_ca}
        named = {name: path for name, path in paths.items() if path}
        tls = {**named, "self_signed": self.tls_cert is None, "resumption": self.tls_resumption}
        return {**super().server(), "tls": tls}


class TcpOptions(TlsOptions):
    """Options of servers over TCP that can refuse."""

    error_share: float = Field(default=0.0, ge=0, le=1)
    """Share of requests (HTTP) or connections (MQTT) that are refused."""


class HttpOptions(TcpOptions):
    """Settings of the HTTP server."""

    port: int = Field(default=80, ge=1, le=65535)
    """TCP port that it listens on."""
    workers: int = Field(default=1, ge=1, le=64)
    """Threads that serve."""
    size: int = Field(default=2, ge=0, le=64 << 20)
    """Bytes of a body where the path ends in no number."""
    error_status: int = Field(default=503, ge=400, le=599)
    """Status of refused requests."""


class MqttOptions(TcpOptions):
    """Settings of the MQTT broker."""

    port: int = Field(default=1883, ge=1, le=65535)
    """TCP port that it listens on."""


class CoapOptions(ServiceOptions):
    """Settings of the CoAP server."""

    port: int = Field(default=5683, ge=1, le=65535)
    """UDP port that it listens on."""
    workers: int = Field(default=1, ge=1, le=64)
    """Threads that serve."""
    size: int = Field(default=2, ge=0, le=64 << 20)
    """Bytes of a body where the path ends in no number."""
    error_share: float = Field(default=0.0, ge=0, le=1)
    """Share of requests that are refused."""
    notify: float = Field(default=1.0, gt=0, le=3600)
    """Seconds between two notifications of an observer."""

    def server(self) -> dict[str, Any]:
        """With the time between notifications."""
        return {**super().server(), "notify_ns": round(self.notify * 1e9)}


class StreamOptions(ServiceOptions):
    """Settings of the receiver of streams."""

    port: int = Field(default=7, ge=1, le=65535)
    """UDP port that it listens on."""
    sink: bool = False
    """Send nothing back."""


class ScriptOptions(TlsOptions):
    """Settings of the server that plays a script."""

    port: int = Field(default=9000, ge=1, le=65535)
    """TCP port that it listens on."""
    workers: int = Field(default=1, ge=1, le=64)
    """Threads that serve."""
    steps: list[dict[str, Any]] = Field(
        default_factory=lambda: [{"repeat": {"count": 0, "steps": [{"expect": "\\n"}, {"send": "ok\\n"}]}}]
    )
    """What is played to each connection, as in the model `script`. Default: answer each line with `ok`."""
    timeout: str | None = None
    """Longest wait for each `expect`, like `10s`; the connection is closed then. Default: no limit."""

    def server(self) -> dict[str, Any]:
        """With the script."""
        common = super().server()
        script = {"steps": common.pop("steps")}
        if limit := common.pop("timeout"):
            script["timeout"] = limit
        return {**common, "script": script}


class Service(CountingServer):
    """`netdynod service`."""

    protocol: ClassVar[str]
    confined: ClassVar[bool] = True
    unconfined: ClassVar[frozenset[str]] = frozenset({"device", "tls_cert", "tls_key", "tls_client_ca"})
    counted: ClassVar[tuple[str, str]]
    """The counter of the witness, and in words."""
    kind: ClassVar[socket.SocketKind] = socket.SOCK_STREAM

    def command(self) -> list[str]:
        options: ServiceOptions = self.options
        listen = f"{self._host()}:{self.options.port}"
        settings = {"protocol": self.protocol, "listen": listen, **options.server()}
        if options.device:
            ends = {"name": "server", "device": options.device, "ip": options.ip, "mtu": options.mtu}
            settings["port"] = {key: value for key, value in ends.items() if value is not None}
        return [str(program()), "service", "--settings", json.dumps(settings)]

    def _host(self) -> str:
        """The address that it serves at, as a URL has it."""
        options: ServiceOptions = self.options
        return url_host(options.ip.partition("/")[0] if options.ip else self.place.address)

    def targets(self) -> dict[str, str]:
        host = self._host()
        scheme = f"{self.protocol}s" if getattr(self.options, "tls", False) else self.protocol
        return {scheme: f"{scheme}://{host}:{self.options.port}"}

    def ports(self) -> list[tuple[socket.SocketKind, int]]:
        return [] if self.options.device else [(self.kind, self.options.port)]

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        name, words = self.counted
        return {self.protocol: (words, after.get(name, 0.0) - before.get(name, 0.0))}


class HttpService(Service):
    """The HTTP server."""

    driver: ClassVar[str] = "http-server"
    Options = HttpOptions
    protocol: ClassVar[str] = "http"
    counted: ClassVar[tuple[str, str]] = ("requests", "requests")


class MqttService(Service):
    """The MQTT broker."""

    driver: ClassVar[str] = "mqtt-broker"
    Options = MqttOptions
    protocol: ClassVar[str] = "mqtt"
    counted: ClassVar[tuple[str, str]] = ("messages_received", "publishes received")


class CoapService(Service):
    """The CoAP server."""

    driver: ClassVar[str] = "coap-server"
    Options = CoapOptions
    protocol: ClassVar[str] = "coap"
    counted: ClassVar[tuple[str, str]] = ("requests", "requests")
    kind: ClassVar[socket.SocketKind] = socket.SOCK_DGRAM


class ScriptService(Service):
    """The server that plays a script."""

    driver: ClassVar[str] = "script-server"
    Options = ScriptOptions
    protocol: ClassVar[str] = "script"
    counted: ClassVar[tuple[str, str]] = ("requests", "requests")

    def targets(self) -> dict[str, str]:
        scheme = "tls" if self.options.tls else "tcp"
        return {scheme: f"{scheme}://{url_host(self.place.address)}:{self.options.port}"}

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        """None: a script may take several sends of a client for one request."""
        return {}


class StreamService(Service):
    """The receiver of UDP streams."""

    driver: ClassVar[str] = "stream-receiver"
    Options = StreamOptions
    protocol: ClassVar[str] = "stream"
    counted: ClassVar[tuple[str, str]] = ("datagrams_received", "datagrams received")
    kind: ClassVar[socket.SocketKind] = socket.SOCK_DGRAM

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:{self.options.port}"}

    def witness(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> dict[str, tuple[str, float]]:
        (one,) = super().witness(before, after).values()
        return {"udp": one}
