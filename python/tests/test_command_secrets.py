"""Secrets in command lines: found, hidden, and read from where they stand."""

from __future__ import annotations

import pytest

from netdyno.core import redaction
from netdyno.core.redaction import HIDDEN


@pytest.mark.parametrize(
    ("command", "hidden", "secrets"),
    [
        (
            "psql postgres://bench:s3same@{address}/db -c 'select 1'",
            f"psql postgres://{HIDDEN}@{{address}}/db -c 'select 1'",
            {"s3same"},
        ),
        (
            "env PGPASSWORD=s3same pgbench -h {address}",
            f"env PGPASSWORD={HIDDEN} pgbench -h {{address}}",
            {"s3same"},
        ),
        ("sh -c 'PGPASSWORD=s3same pgbench'", f"sh -c 'PGPASSWORD={HIDDEN} pgbench'", {"s3same"}),
        ("redis-cli -h {address} -a s3same PING", f"redis-cli -h {{address}} -a {HIDDEN} PING", {"s3same"}),
        ("redis-benchmark -a 's3 same' -n 5", f"redis-benchmark -a {HIDDEN} -n 5", {"s3 same"}),
        ("sh -c 'redis-cli -a s3same PING'", f"sh -c 'redis-cli -a {HIDDEN} PING'", {"s3same"}),
        ("mysqlslap -u root -ps3same -h x", f"mysqlslap -u root -p{HIDDEN} -h x", {"s3same"}),
        ("curl -s -u bench:s3same http://x/", f"curl -s -u {HIDDEN} http://x/", {"bench:s3same"}),
        ("ab -A bench:s3same -n 5 http://x/", f"ab -A {HIDDEN} -n 5 http://x/", {"bench:s3same"}),
        ("wrk -H 'Authorization: Bearer s3same' x", f"wrk -H 'Authorization: {HIDDEN}' x", {"Bearer s3same"}),
        ("tool --password=s3same", f"tool --password={HIDDEN}", {"s3same"}),
        ("curl http://x/?token=s3same&n=1", f"curl http://x/?token={HIDDEN}&n=1", {"s3same"}),
        # options of one letter mean something else to other programs
        ("iperf3 -c {address} -p 5201 -u", "iperf3 -c {address} -p 5201 -u", set()),
        ("grep -a redis {address}", "grep -a redis {address}", set()),
        # what stands elsewhere is no secret
        ("redis-cli -a {env:REDIS} PING", "redis-cli -a {env:REDIS} PING", set()),
        ("env PGPASSWORD={file:pw} pgbench", "env PGPASSWORD={file:pw} pgbench", set()),
        ("psql postgres://bench@{address}/db", f"psql postgres://{HIDDEN}@{{address}}/db", set()),
    ],
)
def test_secrets_of_a_command_are_hidden_and_known(command: str, hidden: str, secrets: set[str]) -> None:
    assert redaction.command(command) == hidden
    found = set(redaction.in_command(command))
    assert secrets <= found
    if not secrets:
        assert found == set()
    # once is as good as twice
    assert redaction.command(hidden) == hidden
