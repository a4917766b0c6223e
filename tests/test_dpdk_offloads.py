"""Work that a port does for a stack: bytes, checksums and segments are the same whoever does it, and it is said who did."""

from __future__ import annotations

import time
from typing import Any

import pytest
from lab import Lab, Wire, group, profile, root, sh, tshark, until
from served import OWN, Served

pytestmark = root

TAP = "ndotap"
NET = "10.91.0.1/24"
CURL = ("curl", "-ksS", "--max-time", "140", "-o")
HALF = 50 << 20
"""Of 100 MiB; our server has no larger body than 64 MiB."""


def serve(lab: Lab, cable: Wire, *words: str) -> Served:
    """A server with TLS on a tap, whose other end is the kernel's: what it sends is of no pattern, and proves itself."""
    secured = ("--tls-self-signed", str(lab.base / "server.pem"))
    port = ("--port", f"tap:{TAP}", "--prefix", "24", *secured, *words)
    served = Served(lab, cable.at_near, "http", f"{OWN}:443", *port)
    # the cable has the network, too: it is reached over the tap alone
    sh("ip", "-n", cable.near, "addr", "flush", "dev", "w0")
    sh("ip", "-n", cable.near, "addr", "add", NET, "dev", TAP)
    return served


@pytest.mark.parametrize("offloads", ["none", "checksum", "checksum,segment"])
def test_what_the_kernel_gets_over_a_tap_is_exact_whoever_makes_checksums_and_segments(
    lab: Lab, cable: Wire, offloads: str
) -> None:
    served = serve(lab, cable, "--offloads", offloads)
    capture, page = lab.base / "seen.pcap", lab.base / "page"
    watch = ("tcpdump", "-i", TAP, "-U", "-B", "65536", "-w", str(capture), "src", OWN)
    watcher = lab.spawn(*cable.at_near, *watch)
    until(lambda: capture.exists() and capture.stat().st_size >= 24, 60, "nothing is captured")
    sh(*cable.at_near, *CURL, str(page), f"https://{OWN}/1000000")
    assert page.read_bytes() == b"x" * 1_000_000
    time.sleep(0.5)
    watcher.terminate()
    watcher.wait(60)
    checked = ("tcp.check_checksum", "ip.check_checksum")
    wrong = "_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0"
    assert tshark(capture, wrong, "frame.number", options=checked) == []
    sizes = [int(size) for (size,) in tshark(capture, "tcp.len > 0", "frame.len", options=checked)]
    # of a busy machine the capture may miss some
    assert sum(sizes) > 500_000
    assert max(sizes) <= 1_514
    for _ in range(2):
        sh(*cable.at_near, *CURL, str(page), f"https://{OWN}/{HALF}")
        whole = page.read_bytes()
        assert len(whole) == whole.count(b"x") == HALF
    assert served.counters()["responses"] == 3


def test_what_devices_send_is_segmented_by_the_port_and_the_result_says_so(lab: Lab, cable: Wire) -> None:
    sh("ip", "-n", cable.near, "addr", "flush", "dev", "w0")
    load = group(
        "web", "http://10.91.0.1", {"http": {"method": "POST", "size": "1MB", "interval": "100ms"}}, devices=3
    )

    def ran(offloads: Any) -> tuple[Any, dict[str, int]]:
        served = Served(lab, cable.at_near, "http", "0.0.0.0:80")
        port = {"name": "a", "device": f"tap:{TAP}", "ip": f"{OWN}/24", "offloads": offloads}
        document = lab.write("p.json", profile(load, measure="4s", transport={"dpdk": {"ports": [port]}}))
        child = lab.start("run", document, prefix=cable.at_near)
        until(lambda: TAP in sh("ip", "-n", cable.near, "-br", "link"), 60, "there is no tap")
        sh("ip", "-n", cable.near, "addr", "add", NET, "dev", TAP)
        done = lab.wait(child)
        assert done.folder is not None, done.text
        total = done.trial.groups[0].total
        counters = served.counters()
        assert counters["requests"] == counters["responses"] == total.messages_delivered > 2, done.text
        assert counters["bytes_received"] > 1_000_000 * total.messages_delivered
        (port_done,) = done.trial.ports
        return port_done["work"], done.trial.interfaces["a"]

    work, counters = ran(["checksum", "segment"])
    assert (work["checksums_sent"], work["checksums_received"], work["segments"]) == ("port", "port", "port")
    large = counters["tcp_frames_segmented_by_port"]
    assert 0 < large < counters["tcp_segments_sent"] / 2
    work, counters = ran("none")
    assert set(work.values()) == {"software"}, work
    assert "tcp_frames_segmented_by_port" not in counters


@pytest.mark.parametrize("work", [("checksum", "segment"), ("checksum",), ()])
def test_between_virtio_and_vhost_nothing_is_summed_or_cut_where_both_ends_leave_it(
    lab: Lab, work: tuple[str, ...]
) -> None:
    """A large frame goes whole, as between virtual machines: the end that gets it must be one that leaves checksums, too."""
    vhost = f"net_vhost0,iface={lab.base}/vhost,tso=1"
    at_server = ("--port", vhost, "--prefix", "24", "--offloads", "checksum" if work else "none")
    served = Served(lab, (), "http", f"{OWN}:80", *at_server, wait=False)
    port = {
        "name": "a",
        "device": f"virtio_user0,path={lab.base}/vhost,queue_size=1024",
        "ip": "10.91.0.8/24",
        "mac": "02:00:00:00:91:08",
        "offloads": list(work),
    }
    load = group(
        "web", f"http://{OWN}/30000", {"http": {"method": "POST", "size": "500kB", "interval": "100ms"}}, 3
    )
    done = lab.run(
        "run", lab.write("p.json", profile(load, measure="4s", transport={"dpdk": {"ports": [port]}}))
    )
    assert done.folder is not None, done.text + served.text()
    total = done.trial.groups[0].total
    counters = served.counters()
    assert counters["requests"] == counters["responses"] == total.messages_delivered > 2, done.text
    assert counters["bytes_received"] > 500_000 * total.messages_delivered
    stack = done.trial.interfaces["a"]
    assert ("tcp_frames_segmented_by_port" in stack) == ("segment" in work)
    assert "dropped_bad_checksum" not in stack
