"""The core's SIP server as a process."""

from __future__ import annotations

from typing import ClassVar

from netdyno.core.server import Server


class SipServer(Server):
    """A registrar with a proxy, redirect server or UAS. It ends with this process."""

    command: ClassVar[str] = "sip-serve"
    bad_setting: ClassVar[str] = "ND-104-72"
    cannot_listen: ClassVar[str] = "ND-92-49"
