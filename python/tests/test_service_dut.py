"""Our servers as devices under test: each option reaches the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.lab.dut.base import DutSite
from netdyno.lab.dut.service import (
    CoapService,
    HttpService,
    MqttService,
    ScriptService,
    Service,
    StreamService,
)

VALUES: dict[str, Any] = {
    "delay": 0.5,
    "drop_share": 0.25,
    "error_share": 0.125,
    "error_status": 404,
    "notify": 2.0,
    "port": 4242,
    "seed": 7,
    "sink": True,
    "size": 99,
    "steps": [{"send": "hello"}],
    "timeout": "9s",
    "tls": True,
    "workers": 3,
}
"""Values other than the defaults; files of TLS are named in a test with TLS."""
PORT = {"device": "net_null0", "ip": "192.0.2.1/24", "mtu": 1400}
"""Of a DPDK port, which has all of them."""
TLS = {"tls_cert": "/c.pem", "tls_key": "/k.pem", "tls_client_ca": "/ca.pem", "tls_resumption": False}


def settings(kind: type[Service], **options: Any) -> str:
    one = kind(DutSite("server", "192.0.2.1", "none"))
    one.options = kind.Options(**options)
    return one.command()[-1]


@pytest.mark.parametrize("kind", [HttpService, MqttService, CoapService, StreamService, ScriptService])
def test_each_option_reaches_the_server(kind: type[Service], fake: Path) -> None:
    for name in kind.Options.model_fields:
        if name in TLS:
            # a key is that of a certificate
            given = {"tls": True, **({"tls_cert": "/c.pem"} if name == "tls_key" else {})}
            assert settings(kind, **given, **{name: TLS[name]}) != settings(kind, **given), name
        elif name in PORT:
            assert repr(PORT[name])[1:-1] in settings(kind, **PORT), name
        else:
            assert settings(kind, **{name: VALUES[name]}) != settings(kind), name
