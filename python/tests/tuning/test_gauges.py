"""Gauges of what holds connections back, against readings of `ss` as they were on paths of known limits."""

from __future__ import annotations

from netdyno.lab import sockets
from netdyno.tuning.gauges import Connections, ports_taken, shortage

MOST = 212992


def series(*readings: tuple[float, str]) -> dict[str, float]:
    """The gauges of one window from the first reading to the last."""
    known = Connections()
    for time, text in readings:
        known.glance(time, sockets.parse(text))
    return known.window(MOST)


RECEIVER = (
    "ESTAB 0 0 198.18.0.2:7000 198.18.0.1:40308 skmem:(r0,rb{rb},t0,tb69120,f0,w0,o0,bl0,d0) bbr wscale:10,7 rto:244 "
    "rtt:40.159/20.079 ato:40 mss:1448 pmtu:1500 cwnd:10 bytes_received:{got} segs_out:857 lastsnd:944{last} lastack:4 "
    "app_limited rcv_rtt:{trip} rcv_space:178104 rcv_ssthresh:166003 minrtt:{least} snd_wnd:64512"
)
"""40 ms at 33 Mbit/s, as the kernel told it of a window of 166 kB."""


def receiver(rate: float, rb: int = MOST, trip: float = 40.0, least: float = 40.159, last: str = "") -> float:
    """What is said of one that gets so many bytes a second."""
    lines = [
        RECEIVER.format(rb=rb, got=round(3366976 + rate * t), trip=trip, least=least, last=last)
        for t in (0, 1)
    ]
    return series((10.0, lines[0]), (11.0, lines[1]))["tcp.windows_full"]


def test_a_window_is_full_when_all_of_it_comes_in_each_round_trip() -> None:
    assert receiver(4.1e6) == 1
    # also when something came this very millisecond, of which `ss` says nothing
    assert receiver(4.1e6, last=" lastrcv:4") == 1
    # its buffer may grow by itself still; its sender sends less; it does not receive
    assert receiver(4.1e6, rb=131072) == 0
    assert receiver(1e6) == 0
    assert receiver(0) == 0


def test_a_buffer_that_does_not_grow_is_stuck() -> None:
    def stuck(before: int, after: int, rate: float = 4.1e6) -> float:
        lines = [
            RECEIVER.format(rb=rb, got=round(3366976 + rate * t), trip=40.0, least=40.159, last="")
            for t, rb in ((0, before), (1, after))
        ]
        return series((10.0, lines[0]), (11.0, lines[1]))["tcp.windows_stuck"]

    assert stuck(200000, 200000) == 1
    # it grows; it is not full; it may not be larger
    assert stuck(190000, 200000) == 0
    assert stuck(200000, 200000, 1e6) == 0
    assert stuck(MOST, MOST) == 0


def test_a_queue_on_the_way_does_not_make_a_window_small() -> None:
    """The same bytes wait somewhere, and come no sooner with a larger window."""
    assert receiver(1e6, trip=160.0) == 0


SENDER = (
    "ESTAB 0 1670232 198.18.0.1:40308 198.18.0.2:{port} skmem:(r0,rb131072,t0,tb2460672,f2600,w1721816,o0,bl0,d0) {cc} "
    "wscale:7,10 rto:240 rtt:{rtt}/0.029 mss:1448 pmtu:1500 cwnd:{cwnd} ssthresh:14 bytes_sent:{sent} {lost}"
    "bytes_acked:{sent} segs_out:2404 segs_in:845 send 70943637bps lastsnd:{rest} lastrcv:968 "
    "pacing_rate 40725384bps delivery_rate 32882048bps delivered:2289 busy:{busy}ms {held}unacked:114 minrtt:40.08"
)


def sender(
    sent: int, busy: int, lost: int = 0, cc: str = "reno", rtt: float = 40.2, cwnd: int = 30, rest: int = 4,
    held: str = "", port: int = 7000,
) -> str:  # fmt: skip
    return SENDER.format(
        sent=sent, busy=busy, lost=f"bytes_retrans:{lost} retrans:0/{lost // 1448} " if lost else "", cc=cc, rtt=rtt,
        cwnd=cwnd, rest=rest, held=held, port=port,
    )  # fmt: skip


def test_losses_without_a_queue_hold_a_sender_down() -> None:
    start = (0.0, sender(1_000_000, 1000))

    def lossy(**change: float) -> float:
        return series(start, (1.0, sender(1_400_000, 2000, **change)))["tcp.lossy.reno"]

    assert lossy(lost=5792) == 1
    assert lossy() == 0
    # it fills the queue that it loses from, or hardly loses
    assert lossy(lost=5792, rtt=95.0) == 0
    assert lossy(lost=1448 // 2) == 0


def test_each_congestion_control_has_its_pace() -> None:
    before = sender(1_000_000, 1000) + "\n" + sender(0, 0, cc="bbr", port=7001)
    after = (
        sender(1_400_000, 2000, lost=5792) + "\n" + sender(9_000_000, 600, lost=60000, cc="bbr", port=7001)
    )
    found = series((0.0, before), (1.0, after))
    assert (found["tcp.pace.reno"], found["tcp.pace.bbr"]) == (400_000, 15_000_000)
    assert (found["tcp.lossy.reno"], found["tcp.lossy.bbr"]) == (1, 1)


def test_a_burst_after_a_rest_is_seen_between_two_windows() -> None:
    """Four looks a second: it rests in one of them, and bursts in another."""
    looks = [(0.0, sender(0, 0)), (0.25, sender(900_000, 220, cwnd=200, rest=4)),
             (0.5, sender(1_000_000, 240, cwnd=200, rest=300)), (1.0, sender(1_500_000, 400, cwnd=80))]  # fmt: skip
    found = series(*looks)
    assert found["tcp.restarts"] == 1
    assert found["tcp.burst_pace"] == 1_500_000 / 0.4
    # it never rests for as long as its RTO; it rests and sends no more than a first window
    assert series(looks[0], looks[1], looks[3])["tcp.restarts"] == 0
    assert series((0.0, sender(0, 0, rest=300)), (1.0, sender(10_000, 40, rest=300)))["tcp.restarts"] == 0


def test_the_share_that_a_full_send_buffer_holds_back_is_of_the_window() -> None:
    found = series(
        (0.0, sender(0, 60_000, held="sndbuf_limited:60000ms(100%) ")),
        (1.0, sender(0, 61_000, held="sndbuf_limited:60250ms(98.8%) ")),
    )
    assert found["tcp.sndbuf_limited"] == 0.25


def test_connections_come_go_and_have_the_names_of_others() -> None:
    known = Connections()
    known.glance(0.0, sockets.parse(sender(5_000_000, 9000)))
    known.window(MOST)
    # one that ended, and another of the same ends; one that lived between two windows
    known.glance(0.5, sockets.parse(sender(100_000, 100) + "\n" + sender(200_000, 100, cc="bbr", port=7001)))
    known.glance(1.0, sockets.parse(sender(300_000, 300)))
    found = known.window(MOST)
    assert found["tcp.pace.bbr"] == 2_000_000
    assert found["tcp.sent"] == 400_000
    known.glance(2.0, [])
    assert known.window(MOST)["tcp.sent"] == 0
    assert Connections().window(MOST)["tcp.windows_full"] == 0


def test_ports_that_wait_are_counted_by_peer() -> None:
    lines = [f"0 0 10.0.0.1:{port} 10.0.0.2:80 " for port in range(32768, 32768 + 90)]
    lines += [f"0 0 10.0.0.1:{port} 10.0.0.3:80 " for port in range(32768, 32768 + 50)] + [
        "0 0 10.0.0.1:80 10.0.0.9:9"
    ]
    waiting = sockets.parse_waiting("\n".join([*lines, "nonsense"]))
    assert ports_taken(waiting, 32768, 32867) == 0.9
    assert ports_taken([], 32768, 32867) == 0
    assert shortage(0.9, {}) == 0.9
    assert shortage(0.9, {"TcpExtTWRecycled": 3.0}) == 0


def test_a_send_buffer_that_its_program_fixed_is_not_the_parameters() -> None:
    """tcp_wmem.max bounds what the kernel lets grow; SO_SNDBUF fixes a size that it does not touch."""
    for size, share in ((87_040, 0.0), (MOST, 0.25), (2 * MOST, 0.25)):
        known = Connections()
        memory = f"skmem:(r0,rb131072,t0,tb{size},f0,w0,o0,bl0,d0) "
        for time, busy, held in ((0.0, 60_000, 60_000), (1.0, 61_000, 60_250)):
            text = sender(0, busy, held=memory + f"sndbuf_limited:{held}ms(99%) ")
            known.glance(time, sockets.parse(text))
        assert known.window(MOST, MOST)["tcp.sndbuf_limited"] == share
