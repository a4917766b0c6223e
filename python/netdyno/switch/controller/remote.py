"""A controller by the address of its REST interface: its settings, and the way of a switch to it."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import field_validator

from netdyno.config import Config
from netdyno.core import secret
from netdyno.errors import Error
from netdyno.switch.controller.base import Controller
from netdyno.switch.controller.relay import Relay
from netdyno.switch.controller.rest import Rest

OPENFLOW = 6653
AT = "--controller"


class RemoteSettings(Config):
    """Where a controller is, and the account there."""

    url: str = ""
    """Of its REST interface, like `http://192.0.2.1:8181`."""
    openflow: str = ""
    """HOST:PORT where switches connect; default: the host of `url`, port 6653."""
    user: str = ""
    """Name of the account; default: that of a new installation."""
    password: str = ""
    """`env:NAME` or `file:PATH`; default: that of a new installation."""

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query):
            raise ValueError("write the URL like http://192.0.2.1:8181")
        if parts.username or parts.password:
            raise ValueError("an account is not written in the URL: use user=NAME,password=env:NAME")
        _ = parts.port
        return value

    @field_validator("openflow")
    @classmethod
    def _openflow(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if value and not (host and port.isdecimal() and 1 <= int(port) <= 65535):
            raise ValueError(f"{value[:80]!r} is no HOST:PORT")
        return value

    @field_validator("password")
    @classmethod
    def _password(cls, value: str) -> str:
        if value and value.partition(":")[0] not in ("env", "file"):
            raise ValueError("a password is not written here: name it as env:NAME or file:PATH")
        return value

    @property
    def switches(self) -> tuple[str, int]:
        """Where switches connect."""
        host, _, port = self.openflow.rpartition(":")
        return (host.strip("[]"), int(port)) if port else (str(urlsplit(self.url).hostname), OPENFLOW)


class Remote(Controller):
    """A controller that runs elsewhere: what is common to them."""

    Options: ClassVar[type[Config]] = RemoteSettings
    options: RemoteSettings
    account: ClassVar[tuple[str, str]]
    """Name and password of a new installation."""
    title: ClassVar[str]
    """Its name in messages."""
    _relay: Relay | None = None

    def rest(self, url: str, space: str | None = None) -> Rest:
        """Its REST interface, with the account."""
        known = self.options.password
        password = secret.from_option(known, AT) if known else self.account[1]
        return Rest(self.title, url, self.options.user or self.account[0], password, space)

    def connect_remote(self) -> None:
        """Connect the switch, which is in a namespace, to a controller outside. Raises Error."""
        switch, (host, port) = self.site.switch, self.options.switches
        self._relay = Relay(switch.folder / "controller.sock", host, port)
        switch.connect(self._relay.target)
        try:
            switch.await_connected(self._relay.target)
        except Error as e:
            where, why = f"{host}:{port}", self._relay.why
            e.what = e.what.replace(self._relay.target, where) + (f": {why}" if why else "")
            e.fix = f"Give the address for switches with openflow=HOST:PORT, if it is not {where}"
            raise

    def teardown(self) -> None:
        """End the way of the switch to it."""
        relay, self._relay = self._relay, None
        if relay:
            relay.close()
