"""What a port with a stack receives and sends is kept for Wireshark, whatever kind of port it is."""

from __future__ import annotations

import pytest
from lab import Lab, Wire, root, tshark
from served import OWN, PEER, Served, fill_checksums

pytestmark = root


@pytest.mark.parametrize("more", [(), ("--offloads", "none", "--mss", "600", "--window", "8KiB")])
def test_both_directions_of_a_port_with_devices_are_captured(
    lab: Lab, cable: Wire, more: tuple[str, ...]
) -> None:
    fill_checksums(cable)
    served = Served(lab, cable.at_far, "http", f"{OWN}:80", "--port", "af_packet:w1", "--prefix", "24")
    over = ("--port", "af_packet:w0", "--ip", f"{PEER}/24", *more)
    words = ("-n", "12", "--devices", "3", "--capture", "--capture-filter", "tcp port 80")
    done = lab.run("run", f"http://{OWN}/5000", *over, *words, prefix=cable.at_near)
    assert done.folder is not None, done.text
    answered = done.trial.groups[0].total.messages_delivered
    assert answered == served.counters()["responses"] == 12, done.text
    capture = done.folder / "capture.pcapng"
    wanted = ("ip.src", "tcp.options.mss_val", "tcp.window_size_value")
    asked = tshark(capture, "tcp.flags.syn == 1 && tcp.flags.ack == 0", *wanted)
    sent = tshark(capture, f"ip.src == {PEER} && http.request", "frame.number")
    back = tshark(capture, f"ip.src == {OWN} && tcp.len > 0", "tcp.len")
    assert len(sent) == 12
    assert {source for source, *_ in asked} == {PEER}
    assert sum(int(size) for (size,) in back) >= 12 * 5_000
    mss, window = ("600", "8192") if more else ("1460", "65535")
    assert {tuple(rest) for _, *rest in asked} == {(mss, window)}
    # with timestamps, which take 12 bytes
    assert max(int(size) for (size,) in back) == int(mss) - 12
    assert tshark(capture, "udp || arp", "frame.number") == []


def test_sources_that_no_answer_finds_are_told_before_the_load(lab: Lab, cable: Wire) -> None:
    over = ("--port", "af_packet:w0", "--ip", f"{PEER}/24", "--source", "10.50.0.1")
    done = lab.run("run", f"http://{OWN}/", *over, "--duration", "1s", prefix=cable.at_near)
    assert done.code == 104, done.text
    assert "10.50.0.1 is not in the network of port a" in done.text
    assert "--source" in done.text
