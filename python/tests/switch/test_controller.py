"""Controllers over a real Open vSwitch: flows written, a master killed, nonsense answered, nobody there."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.lab.network import Network
from netdyno.switch.chain import takeover as takeovers
from netdyno.switch.chain.connections import ConnectionReport
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.takeover import TakeoverReport
from netdyno.switch.chain.verify import Verification
from netdyno.switch.controller.base import ControllerSite, entries
from netdyno.switch.controller.channel import Channel, ChannelError
from netdyno.switch.controller.embedded import Embedded, members
from netdyno.switch.controller.etcd import Etcd, EtcdError
from netdyno.switch.controller.kinds import parse
from netdyno.switch.driver.base import Flow, Wiring
from netdyno.switch.driver.ovs import BRIDGE, OvsNetdev
from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.action import DecapNsh, DecNshTtl, EncapNsh, PopVlan, PushVlan, Select, SetNsh
from netdyno.switch.openflow.message import OpenFlowError
from netdyno.switch.tunnel import REMOTE, SWITCH
from netdyno.system import namespace, proc
from netdyno.system.journal import journal

from ..conftest import root
from .hosts import lab, passes

EXAMPLES = Path(__file__).parents[3] / "examples"
FLOWS = [
    Flow(1, "p0", ["p1"]),
    Flow(2, "p1", ["p0"]),
    Flow(3, "p0", [], {"udp": "", "tp_dst": "9"}, priority=900),
    Flow(4, "p0", [PushVlan(5), "p1"], {"tcp": "", "tp_dst": "80"}, priority=800),
    Flow(5, "p1", [PopVlan(), "p0"], {"dl_vlan": "5"}, priority=800),
    Flow(6, "p1", ["p0"], {"arp": "", "dl_src": "02:00:00:00:00:01"}, priority=700),
    Flow(7, "p0", [EncapNsh(77, 254), "p1"], {"tcp": "", "tp_dst": "81"}, priority=800),
    Flow(8, "p1", [DecapNsh(), "p0"], {"dl_type": "0x894f", "nsh_spi": "77", "nsh_si": "254"}, priority=900),
    Flow(
        9,
        "p1",
        [DecNshTtl(), SetNsh(77, 252), "p0"],
        {"dl_type": "0x894f", "nsh_spi": "77", "nsh_si": "253"},
        priority=900,
    ),
    Flow(10, "p0", ["p1", Select(("p1", "p0"))], {"tcp": "", "tp_dst": "82"}, priority=800),
    Flow(11, "", [], {"dl_dst": "02:00:00:00:00:02"}, priority=1000),
    Flow(12, "p1", [], {"dl_type": "0x88a8"}, priority=1500),
]


@pytest.fixture
def switch() -> Iterator[tuple[OvsNetdev, Network]]:
    if why := OvsNetdev.missing():
        pytest.skip(why)
    with lab(2, "k") as net:
        one = OvsNetdev(DutSite("sw", "", net.namespace("sw")), wiring=Wiring(learning=False))
        try:
            one.setup()
            yield one, net
        finally:
            one.teardown()


@contextlib.contextmanager
def controlled(switch: OvsNetdev, folder: Path, count: int) -> Iterator[Embedded]:
    space = switch.place.namespace
    assert space
    made = Embedded(ControllerSite(switch, space, folder, journal()), count)
    try:
        made.setup()
        yield made
    finally:
        made.teardown()


def table(switch: OvsNetdev) -> list[str]:
    """The switch's own list of its flows, without what counts."""
    said = switch._running().ofctl("dump-flows", BRIDGE, "--no-stats")
    flows = sorted(line.strip() for line in said.splitlines() if "cookie" in line)
    said = switch._running().ofctl("dump-groups", BRIDGE)
    return flows + sorted(line.strip() for line in said.splitlines() if "group_id" in line)


@pytest.mark.parametrize(
    "text", ["magic", "embedded:", "embedded:0", "embedded:10", "static:2", "embedded:two"]
)
def test_a_wrong_name_is_told(text: str) -> None:
    with pytest.raises(Error) as wrong:
        parse(text)
    assert wrong.value.code == "ND-104-83" and wrong.value.fix
    assert parse("embedded:9").count == 9 and parse("static").count == 1


@root
def test_flows_are_those_that_the_switch_would_get_without(
    switch: tuple[OvsNetdev, Network], tmp_path: Path
) -> None:
    """The witness is ovs-ofctl: it writes the same flows, and lists the same table."""
    one, net = switch
    one.program(FLOWS)
    witness = table(one)
    assert len(witness) == len(FLOWS) + 1, "flows, and a group"
    one.program([Flow(99, "p1", [], priority=5)])
    assert len(table(one)) == 1, "a group that no flow names is gone"
    with controlled(one, tmp_path, 1) as made:
        made.program(FLOWS)
        assert table(one) == witness
        assert passes(net, "h0", "h1") and one.flow_packets()[1] >= 1
        made.program(FLOWS[:2])
        assert len(table(one)) == 2 and one.flow_packets()[1] >= 1, "a flow that stays is not touched"
        with pytest.raises(Error) as wrong:
            made.program([Flow(1, "p0", ["p1"], {"colour": "red"})])
        assert wrong.value.code == "ND-104-81" and "colour" in wrong.value.what
        assert len(table(one)) == 2


@root
def test_a_master_that_is_killed_is_replaced(switch: tuple[OvsNetdev, Network], tmp_path: Path) -> None:
    """Twice: the next elected has a newer generation id, puts back what is missing, removes what is too many."""
    one, net = switch
    one.program(FLOWS)
    witness = table(one)
    with controlled(one, tmp_path, 3) as made:
        made.program(FLOWS)
        generations = []
        for _ in range(2):
            daemon = one._running()
            daemon.ofctl("del-flows", BRIDGE, "--strict", f"priority=100,in_port={one.numbers['p0']}")
            daemon.ofctl("add-flow", BRIDGE, "priority=5,actions=drop")
            told = made.kill_master()
            assert (told.added, told.removed, told.kept) == (1, 1, len(FLOWS) - 1)
            assert table(one) == witness and told.killed != told.master == made.master()
            generations.append(told.generation)
            assert passes(net, "h0", "h1")
        assert generations == sorted(set(generations))
        assert not made.dead()
        with pytest.raises(Error) as alone:
            made.kill_master()
        assert alone.value.code == "ND-91-42" and "SIGKILL" in made.dead()
        assert passes(net, "h0", "h1"), "without any controller, the flows stay"


@root
def test_a_master_that_is_cut_off_is_replaced(switch: tuple[OvsNetdev, Network], tmp_path: Path) -> None:
    """Nobody tells the others: its lease ends. Flows stay meanwhile, and later it follows."""
    one, net = switch
    with controlled(one, tmp_path, 2) as made:
        made.program(FLOWS)
        witness = table(one)
        told = made.partition_master()
        assert told.killed != told.master and (told.added, told.removed) == (0, 0)
        assert passes(net, "h0", "h1")
        assert made.heal(told.killed) > 0
        assert made.master() == told.master and made.states()[told.killed]["generation"] == told.generation
        assert table(one) == witness


@root
@pytest.mark.parametrize("leader", [True, False])
def test_a_member_of_etcd_that_is_killed_stops_no_election(
    switch: tuple[OvsNetdev, Network], tmp_path: Path, leader: bool
) -> None:
    """With two of three members the next master is elected and flows are programmed; with one, nothing is
    changed and why is told, while packets pass."""
    one, net = switch
    with controlled(one, tmp_path, 3) as made:
        made.program(FLOWS[:1])
        gone = made.kill_etcd(leader)
        assert gone in made._etcd
        # a master that lost its lease meanwhile has a follower
        made._await(lambda: any(s["master"] for s in made.states().values()), "x")
        told = made.kill_master()
        assert told.killed != told.master and (told.added, told.removed) == (0, 0)
        made.program(FLOWS)
        assert len(one.flow_cookies()) == len(FLOWS)
        assert passes(net, "h0", "h1")
        made.kill_etcd(False)
        until = time.monotonic() + 30
        while not any("etcd" in s["error"] for s in made.states().values()):
            assert time.monotonic() < until, made.states()
            time.sleep(0.05)
        with pytest.raises(Error) as wrong:
            made.program(FLOWS[:1])
        assert wrong.value.code == "ND-91-42" and "etcd" in wrong.value.what
        assert len(one.flow_cookies()) == len(FLOWS)
        assert passes(net, "h0", "h1")


def test_a_member_that_answers_is_asked() -> None:
    """And asked first after that."""
    asked: list[str] = []

    class Member(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"health": "true"}')

        def log_message(self, *_: object) -> None:
            pass

    with (
        socket.create_server(("127.0.0.1", 0)) as nobody,
        http.server.HTTPServer(("127.0.0.1", 0), Member) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        absent = nobody.getsockname()[1]
        nobody.close()
        etcd = Etcd(("127.0.0.1", absent), ("127.0.0.1", server.server_port))
        assert etcd.healthy() and etcd._first == 1 and asked == ["/health"]
        server.shutdown()


@root
def test_a_run_with_controllers_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """`kill -9` while the master is cut off; `netdyno restore` ends controllers, etcd, switch and functions."""
    if why := OvsNetdev.missing():
        pytest.skip(why)
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from netdyno.switch.chain.lab import ChainLab
        from netdyno.switch.chain.spec import load
        chain = load(Path({str(EXAMPLES / "chain.yaml")!r})).model_copy(update={{"controller": "embedded:2"}})
        with ChainLab(chain) as lab:
            lab.controller.partition_master()
            nodes = [*lab.controller._etcd.values(), *lab.controller._nodes.values(), lab.vnfs["inspect"].process]
            print(*[lab.network.namespace(host) for host in lab.network.nodes])
            print(*[one.pid for one in [*nodes, lab.switch.process]])
            print(lab.folder, lab.switch.folder, flush=True)
            time.sleep(600)
        """
    )
    state = {**os.environ, "NETDYNO_STATE": str(tmp_path)}
    here = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=state, cwd=here
    ) as child:
        assert child.stdout
        spaces, pids, folders = (child.stdout.readline().split() for _ in range(3))
        child.kill()
    assert set(spaces) <= set(namespace.names()) and all(list(proc.members(int(pid))) for pid in pids)
    done = subprocess.run(
        [sys.executable, "-m", "netdyno", "restore"], env=state, cwd=here, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not set(spaces) & set(namespace.names())
    assert not any(list(proc.members(int(pid))) for pid in pids)
    assert not any(Path(one).exists() for one in folders)


@root
def test_a_master_of_the_past_can_change_nothing(switch: tuple[OvsNetdev, Network], tmp_path: Path) -> None:
    """Its lease is ended while it runs: another is elected, and what it says is refused."""
    one, _ = switch
    with controlled(one, tmp_path, 2) as made:
        made.program(FLOWS)
        witness, before = table(one), made.master()
        space = one.place.namespace
        etcd = Etcd(*members())
        key = namespace.inside(space, lambda: etcd.get("/netdyno/chain/master"))
        assert key and before in key.value
        namespace.inside(space, lambda: etcd.revoke(key.lease))
        made._await(
            lambda: any(s["generation"] > key.created and s["master"] for s in made.states().values()), "x"
        )
        (after,) = [n for n, s in made.states().items() if s["master"] and s["generation"] > key.created]
        if after != before:
            said = made._ask(before, {"do": "program", "flows": []})
            assert "not the master" in said["error"]
        assert table(one) == witness


@root
def test_the_switch_obeys_the_newest_generation_id(switch: tuple[OvsNetdev, Network]) -> None:
    """Two masters: the one with the older id becomes a slave, whose flows are refused, and its id is stale."""
    one = switch[0]
    wanted = entries(one, FLOWS)

    async def talk() -> None:
        opened: asyncio.Queue[Channel] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made = Channel(reader, writer)
            await made.open()
            opened.put_nowait(made)
            await made.closed.wait()
            made.close()

        # the switch takes sockets of its own folder only
        paths = [str(one.folder / "a"), str(one.folder / "b")]
        servers = [await asyncio.start_unix_server(serve, path) for path in paths]
        await asyncio.to_thread(one.connect, *(f"unix:{path}" for path in paths))
        old, new = await opened.get(), await opened.get()
        await old.role(of.MASTER, 5)
        assert (await old.reconcile(wanted)).added == len(FLOWS)
        assert (await old.reconcile(wanted)).kept == len(FLOWS)
        await new.role(of.MASTER, 6)
        with pytest.raises(OpenFlowError, match="slave"):
            await old.reconcile([])
        with pytest.raises(OpenFlowError, match="stale") as refused:
            await old.role(of.MASTER, 5)
        assert refused.value.pair == of.STALE
        assert {each.key: each for each in await new.flows()} == {each.key: each for each in wanted}
        for server in servers:
            server.close()
        one.connect()
        await asyncio.gather(old.closed.wait(), new.closed.wait())
        with pytest.raises(ChannelError, match="not connected"):
            await new.flows()

    asyncio.run(asyncio.wait_for(talk(), 60))


@root
def test_nobody_is_there(switch: tuple[OvsNetdev, Network], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdyno.switch.driver.ovs_daemon.CONNECT", 1.5)
    with pytest.raises(Error) as wrong:
        switch[0].connect("tcp:127.0.0.1:6699")
        switch[0].await_connected("tcp:127.0.0.1:6699")
    assert wrong.value.code == "ND-92-62"
    assert "tcp:127.0.0.1:6699" in wrong.value.what and "refused" in wrong.value.what


@root
def test_a_controller_that_answers_nonsense(
    switch: tuple[OvsNetdev, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdyno.switch.driver.ovs_daemon.CONNECT", 1.5)
    listener = namespace.inside(
        switch[1].namespace("sw"), lambda: socket.create_server(("127.0.0.1", 6699), backlog=5)
    )
    listener.settimeout(10)

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = listener.accept()
                made.recv(64)
                made.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                made.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with pytest.raises(Error) as wrong:
        switch[0].connect("tcp:127.0.0.1:6699")
        switch[0].await_connected("tcp:127.0.0.1:6699")
    listener.close()
    assert wrong.value.code == "ND-92-62" and "OpenFlow" in wrong.value.what


@root
def test_a_port_that_is_taken_is_told(switch: tuple[OvsNetdev, Network], tmp_path: Path) -> None:
    """That of the first of two controllers, and of a member of etcd."""
    one, net = switch
    for address, port in (("127.0.1.1", 6653), ("127.0.0.1", 2379)):
        space = net.namespace("sw")
        with namespace.inside(space, lambda to=(address, port): socket.create_server(to)):
            folder = tmp_path / str(port)
            folder.mkdir()
            with pytest.raises(Error) as wrong, controlled(one, folder, 2):
                pytest.fail("it started")
            assert wrong.value.code == "ND-92-62" and "in use" in wrong.value.what.lower(), wrong.value.what
    with controlled(one, tmp_path, 1) as made:
        made.program(FLOWS[:2])
        assert len(table(one)) == 2


@root
def test_a_switch_that_talks_nonsense_is_told(switch: tuple[OvsNetdev, Network], tmp_path: Path) -> None:
    one, net = switch
    with controlled(one, tmp_path, 1) as made:
        peer = namespace.inside(
            net.namespace("sw"), lambda: socket.create_connection(("127.0.1.1", 6653), 10)
        )
        with peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while peer.recv(4096):
                pass
        made._await(lambda: bool(made.states()["c1"]["error"]), "tells nothing")
        assert "no OpenFlow message" in made.states()["c1"]["error"]
        made.program(FLOWS)


def test_an_etcd_that_is_absent_or_answers_nonsense() -> None:
    class Nonsense(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>" if self.path.endswith("range") else b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        etcd = Etcd(("127.0.0.1", server.server_port))
        assert not etcd.healthy()
        with pytest.raises(EtcdError, match="not JSON"):
            etcd.get("x")
        with pytest.raises(EtcdError, match="ID is missing"):
            etcd.grant(2)
        with pytest.raises(EtcdError, match="a transaction"):
            etcd.create("a", "b", 1)
        server.shutdown()
    with pytest.raises(EtcdError, match="refused"):
        etcd.get("x")


@root
def test_connections_outlive_the_master(capfd: pytest.CaptureFixture[str]) -> None:
    """Five controllers, two masters killed while TCP connections pass a firewall and a NAT: nothing is lost."""
    if why := OvsNetdev.missing():
        pytest.skip(why)
    words = [
        "chain",
        "takeover",
        str(EXAMPLES / "chain.yaml"),
        "--kills",
        "2",
        "--connections",
        "4",
        "--json",
    ]
    assert call(words) == 0
    found = json.loads(capfd.readouterr().out)
    assert len(found["takeovers"]) == 2 and not found["lost"]
    assert all(one["messages"] > 1 and not one["lost"] for one in found["connections"])
    assert len(found["connections"]) == 4 and not found["flows_missing"] and not found["flows_excess"]
    assert all(one["kept"] == 16 and one["added"] == one["removed"] == 0 for one in found["takeovers"])
    assert (
        call(["chain", "takeover", str(EXAMPLES / "chain.yaml"), "--controllers", "2", "--kills", "2"]) == 104
    )


@root
@pytest.mark.drawn
@pytest.mark.parametrize("how", ["kill", "partition"])
def test_the_other_switch_outlives_its_master(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Over a tunnel, controllers of the server's switch: those of the client's keep their master."""
    if why := OvsNetdev.missing():
        pytest.skip(why)
    masters: list[list[dict[str, str]]] = []
    run = takeovers.run

    def watched(lab: ChainLab, *rest: Any) -> TakeoverReport:
        def now() -> dict[str, str]:
            return {host: one.master() for host, one in lab.controllers.items() if isinstance(one, Embedded)}

        masters.append([now()])
        found = run(lab, *rest)
        masters[-1].append(now())
        return found

    monkeypatch.setattr(takeovers, "run", watched)
    words = ["chain", "takeover", str(EXAMPLES / "chain-tunnel.yaml"), "--controllers", "2", "--connections",
             "2", "--how", how, "--json"]  # fmt: skip
    assert call([*words, "--switch", "server"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert not found["lost"] and len(found["takeovers"]) == 1
    before, after = masters[0]
    (taken,) = found["takeovers"]
    assert before[REMOTE] == taken["killed"] != taken["master"] == after[REMOTE]
    assert before[SWITCH] == after[SWITCH]


def test_a_chain_with_one_switch_has_no_other_controllers(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["chain", "takeover", str(EXAMPLES / "chain.yaml"), "--switch", "server"]) == 104
    assert "--switch" in capfd.readouterr().err


def test_what_a_takeover_loses_is_told() -> None:
    good = Verification([], 0.1, {})
    assert not TakeoverReport([], [ConnectionReport(5, 0.1, "")], [], [], good).lost
    assert "reset" in TakeoverReport([], [ConnectionReport(5, 0.1, "reset")], [], [], good).lost
    assert "[3]" in TakeoverReport([], [], [], [3], good).lost
