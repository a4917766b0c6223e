"""The reflector on a DPDK port: a second daemon that sends every frame back where it came from."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from pydantic import Field

from netdyno.core.client import Client, Subscription
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.lab.dut.base import Dut, Settings, url_host
from netdyno.lab.dut.reflector import Reflector


class Options(Settings):
    """Settings of the port."""

    device: str = "net_memif0,role=server"
    """A PCI address or a DPDK virtual device."""
    mac: str | None = None
    """Its Ethernet address; default the device's own."""
    huge_pages: bool = False
    """Packet memory in huge pages, which must be there."""
    port: int = Field(default=7, ge=1, le=65535)
    """UDP port in its URL; frames to every port come back."""


class ReflectorDpdk(Dut):
    """A daemon of its own whose only port has the role `reflector`."""

    driver: ClassVar[str] = "reflector-dpdk"
    Options = Options
    _daemon: Daemon | None = None
    _client: Client | None = None
    _events: Subscription | None = None

    def setup(self) -> None:
        """Start the daemon and set its port going for as long as we hold the lease."""
        o = self.options
        port: dict[str, Any] = {"name": "reflector", "device": o.device, "role": "reflector"}
        port |= {"ip": self.place.address} | ({"mac": o.mac} if o.mac else {})
        profile = {
            "name": "reflector",
            "phases": {"warmup": "0s", "measure": "24h", "drain": "0s"},
            "transport": {"dpdk": {"ports": [port], "huge_pages": o.huge_pages}},
        }
        try:
            log = self.place.log or self.folder / "log"
            self._daemon = Daemon(
                self.folder / "nd-reflector.sock", log, namespace=self.place.namespace, notes=self.place.notes
            )
            self.process = self._daemon.process
            self._client = self._daemon.connect()
            self._client.acquire()
            self._client.call("run.load", profile=profile)
            self._total: dict[str, float] = {}
            self._events = self._client.subscribe()
            self._client.call("run.start")
        except BaseException:
            self.teardown()
            raise

    def attached(self) -> dict[str, str]:
        other = peer(self.options.device)
        return {"reflector": other} if other else {}

    def targets(self) -> dict[str, str]:
        return {"udp": f"udp://{url_host(self.place.address)}:{self.options.port}"}

    def version(self) -> str:
        return Reflector(self.place).version()

    def counters(self) -> dict[str, float]:
        """The port's counters since the start, from the next point of the series."""
        assert self._events is not None
        seen, wait = False, 0.0
        while True:
            event = self._events.next(wait)
            if event is None and wait:
                raise Error("ND-91-23", "the reflector does not say what it counted", at=self.place.at)
            if event is None:
                # all that was waiting is added up: one more, which ends after this call began
                seen, wait = True, 5.0
            elif event.sample:
                for name, value in event.sample.get("interfaces", {}).get("reflector", {}).items():
                    self._total[name] = self._total.get(name, 0.0) + value
                if seen:
                    return dict(self._total)

    def teardown(self) -> None:
        client, self._client = self._client, None
        daemon, self._daemon = self._daemon, None
        self._events = None
        if client is not None:
            with contextlib.suppress(Error):
                client.call("run.stop", timeout=2.0)
            client.close()
        if daemon is not None:
            daemon.stop()
            self.process = None
        super().teardown()


def peer(device: str) -> str | None:
    """The device by which another process reaches a port in shared memory; None for other ports."""
    name, *arguments = device.removeprefix("net_").split(",")
    given = dict(one.split("=", 1) for one in arguments if "=" in one)
    if name.startswith("memif"):
        given["role"] = "client" if given.get("role") == "server" else "server"
        return ",".join(["net_memif0", *(f"{key}={value}" for key, value in given.items() if key != "mac")])
    if name.startswith("vhost") and "iface" in given:
        server = ",server=1" if given.get("client") == "1" else ""
        return f"virtio_user0,path={given['iface']}{server}"
    if name.startswith("virtio_user") and "path" in given:
        client = ",client=1" if given.get("server") == "1" else ""
        return f"net_vhost0,iface={given['path']}{client}"
    return None
