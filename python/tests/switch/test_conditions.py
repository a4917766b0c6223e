"""What a page says of the machine, the versions and the options that its figures come from."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.lab.workload import WORKLOADS
from netdyno.report.locale import catalogue
from netdyno.report.metric_names import metric_name
from netdyno.report.text import Data, Msg
from netdyno.switch import conditions, shares
from netdyno.switch.chain import hops
from netdyno.switch.pages import conditions as part

MACHINE = {"cpu": "Made-up Processor", "cores": 2, "kernel": "6.1.0"}
FOUND: dict[str, Any] = {
    "command": "netdyno switch compare a b", "workload": "iperf3-tcp",
    "options": {"seconds": "1", "congestion": "cubic", "mss": ""},
    "tcp": {"net.ipv4.tcp_congestion_control": "bbr", "net.ipv4.tcp_rmem": "1 2 3"},
    "versions": {"ovs-netdev": "3.1.0", "iperf3": "3.12"}, "load": {"before": 3.5, "after": 4},
}  # fmt: skip


def rows(found: dict[str, Any], language: str = "en") -> dict[str, str]:
    study = {"machine": MACHINE, "netdyno": "0.1.0", "plan": {"repeat": 10}, "result": {"conditions": found}}

    def said(text: Any) -> str:
        shown = text.plain(catalogue(language)) if isinstance(text, Msg) else str(text)
        return shown.replace("\u2068", "").replace("\u2069", "")

    return {said(label.text): said(value.text) for label, value in part.table(study).rows}


def test_machine_versions_options_and_command_are_told() -> None:
    told = rows(FOUND)
    assert told == {
        "Processor": "Made-up Processor, 2 cores", "Kernel": "6.1.0",
        "Load average": "3.50 before the trials, 4.00 after", "Version of ovs-netdev": "3.1.0",
        "Version of iperf3": "3.12", "Version of netdyno": "0.1.0",
        "Congestion control": "cubic, as asked for", "Parameter net.ipv4.tcp_rmem": "1 2 3",
        "Workload": "iperf3-tcp seconds=1 congestion=cubic", "Option --repeat": "10",
        "Command": "netdyno switch compare a b",
    }  # fmt: skip
    assert rows(FOUND, "ko")["혼잡 제어"] == "cubic(지정)"
    asked = {**FOUND, "options": {}}
    assert rows(asked)["Congestion control"] == "bbr, the kernel's default"
    assert set(rows({})) == {"Processor", "Kernel", "Version of netdyno", "Option --repeat"}


def test_metrics_have_names_in_both_languages() -> None:
    names = [hops.CPU.name]
    for name, kind in WORKLOADS.items():
        if name != "command":  # its metrics are the user's
            names += [*kind.metrics, *shares.judged(kind())]
    for one in names:
        said = metric_name(one)
        assert isinstance(said, Msg) and said.plain(catalogue("ko")) != one, one
    assert metric_name("mine") == Data("mine")


@pytest.mark.parametrize("program", ["iperf3", "ab", "wrk"])
def test_programs_are_asked_for_their_version(program: str) -> None:
    assert conditions.version(program, program).count(".") >= 1
    assert conditions.version("sleep", "coreutils") == ""


def test_a_busy_machine_is_told_before_the_first_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(conditions.os, "cpu_count", lambda: 2)
    for average, said in ((1.9, 0), (2.0, 0), (2.1, 1)):
        monkeypatch.setattr(conditions.os, "getloadavg", lambda average=average: (average, 0.0, 0.0))
        assert conditions.load(told.append) == average and len(told) == said
    assert told == ["the machine is busy (load average 2.1 on 2 cores): trials vary with what else runs, "
                    "and intervals are wide"]  # fmt: skip
