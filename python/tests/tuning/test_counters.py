"""Counters of the kernel are read as it shows them, and whatever is no counter is left out."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno.lab import counters, sockets
from netdyno.stats.comparison import counters_here
from netdyno.tuning import watch
from netdyno.tuning.registry import registry

SNMP = """\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens CurrEstab RetransSegs
Tcp: 1 200 120000 -1 72 12 5
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors
Udp: 16384 0 16107 3 16107
"""
NETSTAT = """\
TcpExt: SyncookiesSent ListenOverflows ListenDrops
TcpExt: 0 1903 1903
IpExt: InNoRoutes
IpExt: 7
"""
SOFTNET = """\
03e46b15 00000003 00000006 00000000 00000000 00000000 00000000 00000000 00000000 0000000a 00000001 00000000 00000000
07407608 00000004 00000010 00000000 00000000 00000000 00000000 00000000 00000000 00000002 00000000 00000000 00000001
"""
DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth0: 1234567    8910    1   22    0     0          0         0    98765     432    0   11    0     0       0          0
"""
ETHTOOL = """\
NIC statistics:
     peer_ifindex: 3
     rx_queue_0_drops: 17
     rx_no_buffer_count: 4
     broken: -
"""
SS = (
    "ESTAB 0      43440  10.9.0.1:43860 10.9.0.2:5201 cubic wscale:10,10 rto:204 rtt:40.1/0.5 mss:1448 pmtu:1500 "
    "cwnd:65 ssthresh:60 bytes_sent:325 bytes_retrans:25 segs_out:3 send 18.7Mbps lastsnd:4 pacing_rate 22526128bps "
    "delivery_rate 17.5Mbps delivered:3 busy:4000ms rwnd_limited:3000ms(75.0%) retrans:1/2 minrtt:40.004\n"
    "ESTAB 0      0      10.9.0.1:43862 10.9.0.2:5201 ts sack bbr rtt:41/0.5 cwnd:10 busy:1000ms minrtt:40.5\n"
    "Netid State Recv-Q\n"
)


def test_a_line_of_names_and_a_line_of_numbers() -> None:
    found = counters.parse_pairs(SNMP) | counters.parse_pairs(NETSTAT)
    assert found["UdpRcvbufErrors"] == 16107
    assert found["TcpMaxConn"] == -1
    assert (found["TcpExtListenOverflows"], found["IpExtInNoRoutes"]) == (1903, 7)
    assert len(found) == 7 + 5 + 3 + 1


def test_softnet_is_added_up_over_processors() -> None:
    found = counters.parse_softnet(SOFTNET)
    assert (found["softnet.dropped"], found["softnet.time_squeeze"]) == (7, 0x16)
    assert (found["softnet.received_rps"], found["softnet.flow_limit"]) == (12, 1)


def test_the_other_files() -> None:
    assert counters.parse_columns("Ip6InReceives 12\nIcmp6InMsgs\t3\nodd\n") == {
        "Ip6InReceives": 12,
        "Icmp6InMsgs": 3,
    }
    assert counters.parse_sockstat("sockets: used 9\nTCP: inuse 2 tw 500\n")["sockets.TCP.tw"] == 500
    devices = counters.parse_devices(DEVICES)
    assert (devices["eth0"]["rx_dropped"], devices["eth0"]["tx_dropped"]) == (22, 11)
    assert [len(one) for one in devices.values()] == [16, 16]
    nic = counters.parse_ethtool(ETHTOOL, "eth0")
    assert nic == {
        "nic.eth0.peer_ifindex": 3,
        "nic.eth0.rx_queue_0_drops": 17,
        "nic.eth0.rx_no_buffer_count": 4,
    }
    pressure = counters.parse_pressure(
        "some avg10=1.00 avg60=0.1 avg300=0.00 total=700\nfull total=20\n", "io"
    )
    assert pressure == {"psi.io.some": 700, "psi.io.full": 20}
    cpu = counters.parse_cpu("cpu  10 1 5 80 4 0 2 7 3 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert cpu == {"cpu.all": 109, "cpu.idle": 84, "cpu.softirq": 2, "cpu.steal": 7}
    log = counters.parse_log("TCP: request_sock_TCP: Possible SYN flooding on port 10.9.0.2:80.\neth0: up\n")
    assert log["kernel.syn_flood"] == 1
    assert sum(log.values()) == 1


def test_counters_move_and_gauges_are_told_as_they_are() -> None:
    before = {"TcpExtTW": 5.0, "TcpCurrEstab": 9.0, "sockets.TCP.tw": 100.0}
    after = {"TcpExtTW": 8.0, "TcpCurrEstab": 2.0, "sockets.TCP.tw": 40.0, "TcpExtNew": 4.0}
    assert counters.increases(before, after) == {
        "TcpExtTW": 3, "TcpCurrEstab": 2, "sockets.TCP.tw": 40, "TcpExtNew": 4,
    }  # fmt: skip


def test_a_counter_is_found_on_whichever_host_or_device_it_is() -> None:
    there = {"TcpExtTW": 1.0, "client/TcpExtTW": 2.0, "dev.eth0.tx_dropped": 0.0, "dev.eth0.tx_bytes": 9.0}
    assert counters_here(["TcpExtTW"], there) == ["TcpExtTW", "client/TcpExtTW"]
    assert counters_here(["dev.*.tx_dropped"], there) == ["dev.eth0.tx_dropped"]
    assert counters_here(["dev.*.rx_dropped", "TcpExt"], there) == []


def test_what_tcp_knows_of_its_connections() -> None:
    one, other = sockets.parse(SS)
    assert (one.congestion, other.congestion, one.port) == ("cubic", "bbr", 43860)
    assert one.values["rwnd_limited"] == 0.75
    assert (one.values["delivery_rate"], one.values["retrans"], one.values["rtt"]) == (17.5e6, 2, 40.1)
    found = sockets.summary([one, other])
    assert found["tcp.rwnd_limited"] == pytest.approx(0.6)
    assert (found["tcp.connections"], found["tcp.retransmitted"]) == (2, 2)
    assert sockets.summary([]) == {}


def test_the_congestion_window_of_a_socket() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    window = sockets.congestion_window(info)
    assert window is not None
    assert window == struct.unpack_from("=I", info, 80)[0] >= 1
    assert sockets.congestion_window(info[:50]) is None


READERS: list[Callable[[str], Any]] = [
    counters.parse_pairs, counters.parse_columns, counters.parse_softnet, counters.parse_sockstat,
    counters.parse_devices, counters.parse_cpu, counters.parse_log, sockets.parse,
    lambda text: counters.parse_ethtool(text, "eth0"), lambda text: counters.parse_pressure(text, "cpu"),
]  # fmt: skip
TEXTS = [
    SNMP,
    NETSTAT,
    SOFTNET,
    DEVICES,
    ETHTOOL,
    SS,
    "cpu  1 2 3 4 5 6 7 8\n",
    "some total=1\n",
    "TCP: inuse 2\n",
]


@given(st.sampled_from(TEXTS), st.integers(0, 500), st.text(max_size=20), st.integers(0, 500))
def test_no_text_is_too_short_or_too_odd(text: str, cut: int, put: str, skip: int) -> None:
    odd = text[:cut] + put + text[cut + skip :]
    for reader in READERS:
        reader(odd)


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    for reader in READERS:
        reader(text)


def test_this_machine_is_read() -> None:
    with counters.Sampler(
        {"here": counters.CounterSource(None, ("lo",)), "same": counters.CounterSource()}
    ) as sampler:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x" * 10, ("127.0.0.1", 9))
        found = sampler.stop()
    assert found["UdpOutDatagrams"] >= 1
    assert found["same/UdpOutDatagrams"] >= 1
    assert found["dev.lo.tx_packets"] >= 1
    assert found["cpu.all"] >= 0
    assert "same/cpu.all" not in found


def test_glances_say_what_kept_them_from_looking() -> None:
    """A namespace that is gone is told, and is no service without connections."""
    with sockets.SocketSampler("ndt-nowhere", every=0.001) as glances:
        glances._thread.join(10.0)
    with pytest.raises(OSError, match="ndt-nowhere"):
        glances.summary()
    with sockets.SocketSampler(None, every=60.0) as glances:
        pass
    assert glances.summary() == {}


def test_the_widest_window_is_told_and_the_middle_of_everything_else() -> None:
    glances = sockets.SocketSampler(None)
    glances._looks = [
        {"tcp.snd_wnd": wide, "tcp.rtt_ms": rtt} for wide, rtt in ((65536, 40), (65536, 41), (4e6, 49))
    ]
    assert glances.summary() == {"tcp.rtt_ms": 41, "tcp.snd_wnd": 4e6}
    two = [
        sockets.Connection("ESTAB", "a", "b", values={"busy": 1.0, "snd_wnd": wide})
        for wide in (4e6, 65536.0)
    ]
    assert sockets.summary(two)["tcp.snd_wnd"] == 4e6


def test_tables_with_a_line_for_each_cpu() -> None:
    text = "entries  found drop early_drop\n00000005  00000001 0000000a 00000002\n00000005  00000000 00000006 zz\n"
    assert counters.parse_table(text, "conntrack", ("drop", "missing")) == {"conntrack.drop": 16.0}
    assert counters.parse_table(text, "conntrack", ("early_drop",)) == {}
    assert counters.parse_table("", "conntrack", ("drop",)) == {}


def test_full_tables_of_neighbours_are_told_apart_by_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "STAT", tmp_path)
    (tmp_path / "arp_cache").write_text("entries table_fulls\n0 0\n0 0\n")
    (tmp_path / "ndisc_cache").write_text("entries table_fulls\n0 a\n0 6\n")
    found = counters.read(counters.CounterSource())
    assert (found["neigh.table_fulls"], found["neigh6.table_fulls"]) == (0, 16)
    parameters = {rule.counter: rule.tunable for rule in watch.rules().values()}
    for family, counter in ((4, "neigh.table_fulls"), (6, "neigh6.table_fulls")):
        name = f"net.ipv{family}.neigh.default.gc_thresh3"
        assert parameters[counter] == name
        assert tuple(registry().find(name).counters) == (counter,)
