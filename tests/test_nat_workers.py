"""Several workers of a NAT behind a NIC that steers packets by source address: each has all of its own."""

from __future__ import annotations

import re
import signal

import pytest
from cases_nat_workers import FLOWS, graph, of_worker, queue, subscriber
from lab import Lab, root, until

pytestmark = root
WORKERS = 2


@pytest.mark.parametrize("steered", [True, False])
def test_what_rss_steers_by_address_is_handed_to_no_other_worker(lab: Lab, steered: bool) -> None:
    workers = {core: of_worker(core) for core in range(WORKERS)}
    document = graph(lab.base, workers, WORKERS, steered=steered)
    document["ports"]["b"]["device"] = document["ports"]["b"]["device"].removesuffix(",infinite_rx=1")
    # on whatever cores there are
    document["placement"] = [{"elements": one["elements"]} for one in document["placement"]]
    said = lab.base / "graph.txt"
    with said.open("w") as out:
        child = lab.start(
            "graph",
            "run",
            lab.write("g.json", document),
            "--duration",
            "240s",
            stdout=out,
        )

    def came(element: str) -> list[int]:
        """Packets that each of its replicas had in all."""
        found = [0] * WORKERS
        for number, count in re.findall(rf" running {element}#(\d) worker.* in ([\d,]+)", said.read_text()):
            found[int(number)] = int(count.replace(",", ""))
        return found

    own = [sum(queue(subscriber(flow), WORKERS) == one for flow in range(FLOWS)) for one in range(WORKERS)]
    assert min(own) > 0
    received = own if steered else [FLOWS, FLOWS]
    until(lambda: came("in-validity") == received, 60, "not all is received")
    if steered:
        until(lambda: came("nat") == own, 60, "some was handed to the other worker")
    else:
        until(
            lambda: sum(came("nat")) == sum(received),
            60,
            "some is lost on its way to the other worker",
        )
    child.send_signal(signal.SIGINT)
    lab.wait(child)
    # what a worker sends goes out by a queue of its own
    elements = set(re.findall(r" running (\S+) worker", said.read_text()))
    assert {"c.tx#0", "c.tx#1"} <= elements and not [
        one for one in elements if ">c.tx" in one and "conntrack" in one
    ]
    lab.clean()
