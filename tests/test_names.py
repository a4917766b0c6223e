"""Names with several addresses: the one that works is used and named, and each that does not is told with its cause.

Each runs in a network and mount namespace of its own, in which `/etc/hosts` gives the names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNO

HOSTS = """\
127.0.0.1 localhost
::1 both.test
127.0.0.1 both.test
127.0.0.2 three.test
127.0.0.3 three.test
127.0.0.1 three.test
"""

SERVERS = """
import selectors, socket, sys
chosen = selectors.DefaultSelector()
for text in sys.argv[1:]:
    kind, address, port = text.split(",")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((address, int(port)))
    if kind == "tcp":
        one.listen(512)
    chosen.register(one, selectors.EVENT_READ, kind)
print("ready", flush=True)
while True:
    for key, _ in chosen.select():
        if key.data == "tcp":
            accepted, _ = key.fileobj.accept()
            chosen.register(accepted, selectors.EVENT_READ, "connection")
        elif key.data == "udp":
            data, sender = key.fileobj.recvfrom(65535)
            key.fileobj.sendto(data, sender)
        elif data := key.fileobj.recv(65535):
            answer = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
            key.fileobj.sendall(answer * data.count(b"\\r\\n\\r\\n"))
        else:
            chosen.unregister(key.fileobj)
            key.fileobj.close()
"""

SCRIPT = """
set -e
mount --bind "$FOLDER/hosts" /etc/hosts
ip link set lo up
eval "$RULES"
coproc SERVERS {{ exec {python} "$FOLDER/servers.py" $LISTEN; }}
read -r ready <&"${{SERVERS[0]}}"
code=0
"$@" || code=$?
kill "$SERVERS_PID"
exit $code
"""


def run(folder: Path, group: dict[str, Any], listen: list[str], rules: str = "true") -> tuple[Any, str]:
    """The result of a run of one group with servers at these places, and what the command said."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root for a namespace")
    (folder / "hosts").write_text(HOSTS)
    (folder / "servers.py").write_text(SERVERS)
    profile = {
        "name": "names",
        "phases": {
            "warmup": "0s",
            "measure": "1500ms",
            "drain": "2s",
            "sample": "500ms",
        },
        "groups": [{"name": "g", **group}],
    }
    (folder / "names.json").write_text(json.dumps(profile))
    script = SCRIPT.format(python=sys.executable)
    command = [
        NETDYNO,
        "run",
        str(folder / "names.json"),
        "--runs",
        str(folder / "runs"),
    ]
    said = subprocess.run(
        ["unshare", "--mount", "--net", "bash", "-c", script, "bash", *command],
        env={
            **os.environ,
            "FOLDER": str(folder),
            "LISTEN": " ".join(listen),
            "RULES": rules,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = sorted((folder / "runs").rglob("result.json"))
    assert found, said.stdout + said.stderr
    result = json.loads(found[-1].read_text())
    return result["legs"][0]["repetitions"][0]["groups"][0], said.stdout + said.stderr


HTTP = {"model": {"http": {"interval": "100ms"}}, "devices": 4}
STREAM = {"model": {"stream": {"interval": "100ms"}}, "devices": 2}
PING = {"model": {"ping": {"interval": "100ms"}}}


def addresses(group: Any) -> dict[str, Any]:
    """The addresses of a group, in order."""
    return {one["address"]: one for one in group["addresses"]}


@pytest.mark.parametrize(("at", "not_at"), [("127.0.0.1", "[::1]"), ("::1", None)])
@pytest.mark.parametrize(("kind", "group"), [("tcp", HTTP), ("udp", STREAM)])
def test_a_server_on_one_family_is_healthy(
    tmp_path: Path, kind: str, group: dict[str, Any], at: str, not_at: str | None
) -> None:
    scheme = "http" if kind == "tcp" else "udp"
    got, said = run(
        tmp_path,
        {**group, "target": f"{scheme}://both.test:8080"},
        [f"{kind},{at},8080"],
    )
    measured = got["measured"]
    assert measured["messages_delivered"] == measured["messages_sent"] > 0
    assert not measured["failures"]
    shown = f"[{at}]:8080" if ":" in at else f"{at}:8080"
    assert list(addresses(got)) == ["[::1]:8080", "127.0.0.1:8080"]
    assert [name for name, one in addresses(got).items() if one["used"]] == [shown]
    assert f"→ {shown}" in said
    if not_at:
        refused = addresses(got)[f"{not_at}:8080"]
        assert refused["failed"] >= 1
        assert "refused" in refused["error"]
        assert f"not used: {not_at}:8080" in said


def test_an_echo_request_that_is_refused_goes_to_the_other_family(
    tmp_path: Path,
) -> None:
    rules = "nft add table inet f; nft add chain inet f i '{ type filter hook input priority 0; }'; "
    rules += (
        "nft add rule inet f i ip6 daddr ::1 icmpv6 type echo-request reject with icmpv6 port-unreachable"
    )
    got, said = run(tmp_path, {**PING, "target": "ping://both.test"}, [], rules)
    assert got["measured"]["messages_delivered"] == got["measured"]["messages_sent"] > 0, said
    assert not got["measured"]["failures"]
    assert [name for name, one in addresses(got).items() if one["used"]] == ["127.0.0.1"]


def test_an_address_that_drops_everything_costs_a_share_of_the_patience(
    tmp_path: Path,
) -> None:
    rules = "nft add table inet f; nft add chain inet f i '{ type filter hook input priority 0; }'; "
    rules += "nft add rule inet f i ip6 daddr ::1 tcp dport 8080 drop"
    group = {**HTTP, "target": "http://both.test:8080", "connect_timeout": "1s"}
    got, said = run(tmp_path, group, ["tcp,127.0.0.1,8080"], rules)
    assert not got["measured"]["failures"], said
    assert got["measured"]["messages_delivered"] > 0
    assert "no connection to [::1]:8080 in time" in addresses(got)["[::1]:8080"]["error"]


@pytest.mark.parametrize(("scheme", "group"), [("http", HTTP), ("udp", STREAM)])
def test_each_address_is_told_with_its_cause_when_none_works(
    tmp_path: Path, scheme: str, group: dict[str, Any]
) -> None:
    got, _ = run(tmp_path, {**group, "target": f"{scheme}://both.test:8080"}, [])
    example = next(one["example"] for one in got["errors"] if one["kind"] == "refused")
    assert example.startswith("no address of both.test could be reached: ")
    assert "[::1]:8080 Connection refused" in example
    assert "127.0.0.1:8080 Connection refused" in example
    assert got["measured"]["messages_delivered"] == 0


def test_resolve_chooses_a_family_or_spreads_devices(tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    group = {**HTTP, "target": "http://both.test:8080", "resolve": "v6"}
    got, _ = run(only, group, ["tcp,127.0.0.1,8080"])
    assert list(addresses(got)) == ["[::1]:8080"]
    assert got["measured"]["failures"]["refused"] > 0

    spread = tmp_path / "spread"
    spread.mkdir()
    group = {**HTTP, "devices": 6, "target": "http://three.test:8080", "resolve": "all"}
    listen = [f"tcp,127.0.0.{n},8080" for n in (1, 2)]
    got, _ = run(spread, group, listen)
    opened = {name: one["opened"] for name, one in addresses(got).items()}
    # 127.0.0.3 has no server: its two devices fail, and are not moved elsewhere
    assert opened == {"127.0.0.1:8080": 2, "127.0.0.2:8080": 2, "127.0.0.3:8080": 0}
    assert got["measured"]["failures"]["refused"] > 0
