"""A caching web proxy that clients know nothing of: `proxy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from netdyno import files
from netdyno.lab.dut.base import Settings
from netdyno.switch.chain.vnf.balancer import PORT, Relay
from netdyno.system.process import find

HTTP = [80]


class Options(Settings):
    """What it takes."""

    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default_factory=lambda: list(HTTP), min_length=1, max_length=16
    )
    """Ports of the server whose connections are HTTP; all else is routed."""


class Proxy(Relay):
    """squid, which ends connections of HTTP and asks the server itself."""

    kind: ClassVar[str] = "proxy"
    about: ClassVar[str] = "a transparent web proxy (squid), without a cache"
    Options = Options

    @classmethod
    def http(cls, options: Mapping[str, Any]) -> list[int]:
        """As its options say."""
        found = options.get("ports", HTTP)
        return found if isinstance(found, list) else []

    @classmethod
    def ends(cls, options: Mapping[str, Any], protocol: str, port: int) -> bool:
        """Those of HTTP."""
        return protocol == "tcp" and port in cls.http(options)

    def setup(self) -> None:
        """The router, and the proxy."""
        super().setup()
        program = find("squid", "squid")
        config = self.site.folder / f"vnf-{self.site.name}.conf"
        files.write(config, CONFIG)
        # its own words go to standard error
        self.start([program, "-N", "-d", "1", "-f", str(config)])
        self.redirect(", ".join(map(str, self.options.ports)))


CONFIG = f"""\
http_port {PORT} intercept
http_port 127.0.0.1:60002
http_access allow all
cache deny all
access_log none
cache_store_log none
cache_log /dev/null
pid_filename none
netdb_filename none
coredump_dir none
pinger_enable off
visible_hostname netdyno
shutdown_lifetime 0 seconds
"""
