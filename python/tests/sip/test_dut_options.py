"""Options of SIP servers, databases and name servers: what text may stand in their configuration."""

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DRIVERS, DutSite
from netdyno.sip.dut.database import Database

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("kamailio", {"location": "postgresql-only", "database": "10.0.0.1"}),
    ("kamailio", {"credentials": "mariadb", "database": "db.example.net"}),
    ("kamailio", {"location": "sqlite-write-back", "credentials": "sqlite"}),
    ("kamailio", {"next_hops": {"a.example": "sip:10.0.0.1:5070;transport=tcp"}, "nameserver": "fd00::1"}),
    ("knot", {"records": ["_sip._udp SRV 10 0 5060 home", '@ NAPTR 10 10 "s" "SIP+D2U" "" _sip._udp']}),
    ("kamailio", {"media_relay": "[fd00::1]:2223"}),
    ("rtpengine", {"port_min": 30000, "port_max": 30003}),
    ("sippy", {"next_hop": "[fd00::1]:5060"}),
]
BAD: list[tuple[str, dict[str, Any]]] = [
    ("kamailio", {"location": "postgresql-only"}),
    ("kamailio", {"credentials": "mariadb"}),
    ("kamailio", {"password": 'a"); exit; ('}),
    ("kamailio", {"domain": "a b"}),
    ("kamailio", {"database": "db/x?y"}),
    ("kamailio", {"next_hops": {"a.example": 'sip:a"; exec("x'}}),
    ("kamailio", {"next_hops": {'"': "sip:a"}}),
    ("kamailio", {"nameserver": "10.0.0.1\noptions x"}),
    ("kamailio", {"users": 1_000_001}),
    ("knot", {"records": ["$INCLUDE /etc/shadow"]}),
    ("knot", {"records": ["a A 10.0.0.1\n$INCLUDE /etc/shadow"]}),
    ("knot", {"zone": "a\nb"}),
    ("ejabberd", {"password": '">>), halt('}),
    ("ejabberd", {"domain": '"'}),
    ("kamailio", {"media_relay": "10.0.0.2:2223", "role": "stateless-proxy"}),
    ("kamailio", {"media_relay": "10.0.0.2:2223", "record_route": False}),
    ("kamailio", {"media_relay": '10.0.0.2:2223"); exec("x'}),
    ("rtpengine", {"port_min": 30000, "port_max": 30002}),
    ("rtpengine", {"threads": 0}),
    ("sippy", {"next_hop": "-x"}),
]


@pytest.mark.parametrize(("driver", "options"), GOOD)
def test_good_options(driver: str, options: dict[str, Any]) -> None:
    DRIVERS[driver](DutSite("server", "10.0.0.2"), options)


@pytest.mark.parametrize(("driver", "options"), BAD)
def test_bad_options_are_refused(driver: str, options: dict[str, Any]) -> None:
    with pytest.raises(Error) as refused:
        DRIVERS[driver](DutSite("server", "10.0.0.2"), options)
    assert refused.value.code == "ND-104-24"
    assert refused.value.at.startswith("duts.server.options")


def test_users_of_a_database_are_loaded_once(tmp_path: Any) -> None:
    import sqlite3

    database = Database("sqlite", tmp_path / "users.sqlite")
    place = DutSite("server", "10.0.0.2")
    for _ in range(2):
        assert database.prepare(place, users=300, accounts=20, password="secret") >= 0
    with sqlite3.connect(database.file) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT username) FROM location").fetchone() == (
            300,
            300,
        )
        names = {name for (name,) in connection.execute("SELECT username FROM subscriber")}
    assert names == {f"{kind}{n}" for kind in ("user", "callee", "resident") for n in range(20)}
