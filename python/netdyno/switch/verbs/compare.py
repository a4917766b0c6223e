"""`netdyno switch compare`: switches beside each other under one load."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from netdyno import assignments, files, paths, quantities
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.options import Json
from netdyno.cli.resumable import resumable
from netdyno.cli.verb import again
from netdyno.errors import Error
from netdyno.experiment.arms import Arm, Contrast, MeasuredArms
from netdyno.experiment.entry import REPORT
from netdyno.experiment.pairs import unequal
from netdyno.experiment.record import measured_at
from netdyno.experiment.study import Study
from netdyno.lab import impairment
from netdyno.lab.topology import need_root
from netdyno.lab.workload.stream import AT_MOST
from netdyno.stats.comparison import Finding, Verdict
from netdyno.stats.estimate import mean, sd
from netdyno.stats.observation import Metric, Observation
from netdyno.switch import compare as comparing
from netdyno.switch import remote
from netdyno.switch import tunnel as tunnels
from netdyno.switch.bench import REASON, Spec, dropped, missing
from netdyno.switch.compare import ComparisonRequest
from netdyno.switch.guests import Endpoints
from netdyno.switch.remote import RemoteHost
from netdyno.system.interrupt import Interrupts

EndpointsKind = Annotated[
    Endpoints,
    typer.Option(
        help="Client and server: network namespaces, virtual machines by KVM, or by QEMU's emulation "
        "where there is no KVM, containers of --image, or two DPDK ports of netdyno's generator.",
        metavar="namespace|vm|container|dpdk",
    ),
]
ImageName = Annotated[
    str,
    typer.Option(
        "--image",
        help="Image of containers as client and server, by Podman, or the folder of its files (/PATH, "
        "./PATH), with the workload's programs in it. Default: none, for other endpoints.",
        metavar="IMAGE|FOLDER",
        show_default=False,
    ),
]

ClientMachine = Annotated[
    str | None,
    typer.Option(
        "--client",
        help="The client is another machine, reached by SSH: USER@HOST,interface=IF,here=IF with port=22, "
        "key=FILE, known_hosts=FILE. A cable joins both interfaces, of which nothing else has any. "
        "Default: as --endpoints says.",
        metavar="MACHINE",
    ),
]
ServerMachine = Annotated[
    str | None,
    typer.Option("--server", help="The server is another machine, as of --client.", metavar="MACHINE"),
]


Spare = Annotated[
    int | None,
    typer.Option(
        "--spare",
        help="Disturbed trials that may be repeated; default: as many as are planned.",
        metavar="N",
        parser=values.whole("--spare", 0, 100_000),
    ),
]


def machines(client: str | None, server: str | None) -> dict[Any, RemoteHost]:
    """Those that are client and server."""
    said = {"client": client, "server": server}
    return {name: remote.checked(text, f"--{name}") for name, text in said.items() if text is not None}


def compare(
    switches: Annotated[
        list[str],
        typer.Argument(
            help="Switches of `netdyno switch list`, with options: ovs-dpdk:over=system. One named twice is "
            "compared with itself.",
            metavar="SWITCH...",
        ),
    ],
    workload: Annotated[str, typer.Option(help="Load between the hosts.", metavar="NAME")] = "iperf3-tcp",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An option of the workload, like seconds=60; `netdyno describe` lists them.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(help="The client's link, as of netdyno impair: delay=5ms,loss=0.1%.", metavar="PATH"),
    ] = None,
    tunnel: Annotated[
        str | None,
        typer.Option(
            help="Two switches of each kind, joined by a tunnel: vxlan, geneve or gre, with "
            "key=42,mtu=1500,host_mtu=1450,ipv6=true,wireguard=true and the underlay's path, "
            "like delay=20ms. Default: one switch of each kind, no tunnel.",
            metavar="TUNNEL",
        ),
    ] = None,
    endpoints: EndpointsKind = "namespace",
    image: ImageName = "",
    client: ClientMachine = None,
    server: ServerMachine = None,
    repeat: Annotated[
        int,
        typer.Option(help="Trials of each switch.", metavar="N", parser=values.whole("--repeat", 2, 1000)),
    ] = 10,
    segments: Annotated[
        bool,
        typer.Option("--segments", help="Segments up to 64 KB for switches that carry them, not frames."),
    ] = False,
    mtu: Annotated[
        int, typer.Option(help="Largest packet.", metavar="BYTES", parser=values.whole("--mtu", 576, 9000))
    ] = 1500,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Test only this metric: fewer tests, more power.", metavar="METRIC"),
    ] = None,
    level: Annotated[
        float,
        typer.Option(
            help="Significance level, over all comparisons and metrics.",
            metavar="P",
            parser=values.number("--level", 0, 0.5),
        ),
    ] = 0.05,
    matters: Annotated[
        float,
        typer.Option(
            help="Smallest change that matters.", metavar="SHARE", parser=values.number("--matters", 0, 10)
        ),
    ] = 0.05,
    spare: Spare = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the order of trials, and of what paths lose in each.",
            metavar="N",
            parser=values.whole("--seed", 0),
        ),
    ] = 1,
    name: Annotated[str | None, typer.Option(help="Name of the study.", metavar="NAME")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier trials and measure again.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report page here.", metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Compare virtual switches under one load, in blocks of trials in randomised order.

    Two hosts (network namespaces, or virtual machines) are joined by one switch after the other. Every two
    switches are compared by a signed-rank test over the blocks; the significance level is shared by all
    comparisons (Bonferroni) and in each by all metrics (Holm). All switches get frames of the MTU unless
    --segments is given. A trial that was disturbed (steal, pressure) or in which the switch ended is
    repeated. After an interrupt, the same command continues; of a finished comparison it shows the result
    again, and --fresh measures anew. Needs root.

        sudo netdyno switch compare linux-bridge ovs-netdev ovs-dpdk

        sudo netdyno switch compare linux-bridge ovs-afxdp --set seconds=60 --repeat 10 --html report.html

        sudo netdyno switch compare ovs-netdev ovs-afxdp --tunnel vxlan,delay=20ms

        sudo netdyno switch compare linux-bridge ovs-dpdk:over=vhost-user --endpoints vm

        sudo netdyno switch compare linux-bridge ovs-netdev --server root@192.0.2.7,interface=eth1,here=eth2

        sudo netdyno switch compare ovs-netdev ovs-netdev --workload iperf3-udp --set rate=100M
    """
    for one in switches:
        # a wrong name first: alone, it would be told that one more is needed
        comparing.setting(one)
    if not 2 <= len(switches) <= comparing.MOST_ARMS:
        count = len(switches)
        what = "one switch alone cannot be compared" if count == 1 else f"{count} switches are too many"
        raise Error(
            "ND-104-80", what, at="SWITCH", fix=f"Name 2 to {comparing.MOST_ARMS}; one may come twice"
        )
    wanted = ComparisonRequest(
        switches=switches,
        bench=Spec(
            workload=workload,
            options=assignments.options(options or (), "--set"),
            path=way(path),
            segments=segments,
            mtu=mtu,
            tunnel=tunnels.checked(tunnel) if tunnel else None,
            endpoints=endpoints,
            image=image,
            remote=machines(client, server),
        ),
        repeat=repeat, spare=spare, level=level, matters=matters, seed=seed, metrics=metric or (),
        name=name, fresh=fresh,
    )  # fmt: skip
    need_root()
    put_back()
    told = Progress()
    with resumable(), Interrupts().installed() as interrupts:
        found = comparing.compare(wanted, console.note, told.trial, interrupts.shielded)
    if html:
        from netdyno.report.studies import render

        files.make_folder(html.parent)
        files.write(html, render([found.document]), shared=True)
        console.note(f"page: {html}")
    if as_json:
        console.document(found.document["result"])
    else:
        show_arms(found.arms, found.contrasts, found.metrics, found.study.bench, found.repeat)
        stored(found.study, found.document)
    if found.reused:
        console.note(found.reused)
    if odd := next((one.comparison for one in found.contrasts if one.comparison.unequal), None):
        raise unequal(odd.unequal)
    if found.too_few:
        short = next(one.comparison for one in found.contrasts if one.comparison.too_few)
        raise too_few(short.shortage, found.repeat * len(found.arms.arms))


def too_few(shortage: str, planned: int) -> Error:
    """That too few of so many trials are valid, with the command that repeats more of them."""
    fix = f"Repeat with `{again('--spare', 2 * planned)}`: what is valid is kept"
    return Error("ND-90-31", shortage, fix=fix)


def stored(study: Study, document: Mapping[str, Any]) -> None:
    """Say where the result and its page are."""
    console.note(f"stored in {study.document}, run {document['run']}")
    console.note(f"page: {paths.runs() / document['run'] / REPORT}")


def way(text: str | None) -> str | dict[str, Any] | None:
    """`delay=20ms,loss=1%` for both ways, or the name of a preset."""
    if text is None or "=" not in text:
        return text
    said = impairment.words(text, "--path")
    return impairment.changed({}, dict.fromkeys(impairment.WAYS, said))


class Progress:
    """A line per trial on standard error, with the time left."""

    def __init__(self) -> None:
        self._began, self._measured = time.monotonic(), 0

    def trial(self, done: int, of: int, arm: Arm, seen: Observation, kept: bool) -> None:
        """After a trial."""
        said = f"discarded, {seen.why}"
        if seen.valid:
            rate = seen.metrics.get("throughput")
            said = quantities.number(rate, "bit/s") if rate is not None else "done"
        if kept:
            after = f"kept, from {measured_at(seen.started)}"
        else:
            self._measured += 1
            after = f"{quantities.wait((time.monotonic() - self._began) / self._measured * (of - done))} left"
        console.note(f"trial {done} of {of}, {arm.name}: {said}; {after}")


def show_arms(
    found: MeasuredArms, judged: Sequence[Contrast], of: Mapping[str, Metric], title: str, blocks: int
) -> None:
    """Each arm, then every two of them."""
    metrics = list(of.values())
    rows = []
    for place, arm in enumerate(found.arms):
        seen = found.valid(place)
        cells = [spread([one.metrics[m.name] for one in seen if m.name in one.metrics], m) for m in metrics]
        cpu = [one.counters.get("switch.cpu", 0.0) / one.seconds for one in seen if one.seconds]
        rows.append((arm.name, str(len(seen)), *cells, f"{mean(cpu):.0%}" if any(cpu) else "–"))
    heads: tuple[str, ...] = ("", "trials", *(m.name for m in metrics), "CPU of the switch")
    console.table(heads, rows, title, right=heads[1:])
    for place, arm in enumerate(found.arms):
        if told := lost(found.valid(place)):
            console.out().print(f"{arm.name}, packets of a trial: {told}", markup=False)
        if told := ceiling(found.valid(place)):
            console.out().print(f"{arm.name}: {told}", markup=False)
    if judged:
        lines = [row(one, f, found.arms) for one in judged for f in one.comparison.findings]
        heads = ("compared", "metric", "change", "interval", "p (Holm)", "")
        level = judged[0].comparison.level
        each = "for one comparison" if len(judged) == 1 else f"for each of {len(judged)} comparisons"
        said = f"{blocks} blocks, level {level:.3g} {each}"
        console.table(heads, lines, said, right=heads[2:5])
    for what, count in found.again.items():
        console.out().print(f"{count} trials measured again: {what}", markup=False)


def ceiling(seen: Sequence[Observation]) -> str:
    """That a search for the highest rate ended where it began; empty: it did not."""
    count = sum(bool(one.counters.get(AT_MOST)) for one in seen)
    what = "the highest rate that was tried holds, and higher ones may: raise --set most="
    return f"in {count} of {len(seen)} trials {what}" if count else ""


def lost(seen: Sequence[Observation]) -> str:
    """Packets that were sent and not received, and those that the switch dropped, with its own reasons."""
    gone = [sum(of.values()) for one in seen if (of := missing(one.counters))]
    counted = [known for one in seen if (known := dropped(one.counters)) is not None]
    own = drops(seen)
    parts = [f"{mean(gone):,.0f} sent and not received"] if gone else []
    parts.append(f"{mean(counted):,.0f} dropped by the switch" if counted else "drops not counted")
    return ", ".join(parts) + (f" ({own})" if own else "") if seen else ""


def drops(seen: Sequence[Observation]) -> str:
    """Drops by the switch's own reasons, means of a trial."""
    names = dict.fromkeys(name for one in seen for name in one.counters if name.startswith(REASON))
    return ", ".join(
        f"{mean([one.counters.get(name, 0.0) for one in seen]):,.1f} {name.removeprefix(REASON)}"
        for name in names
    )


def spread(seen: list[float], metric: Metric) -> str:
    """Mean and standard deviation."""
    if not seen:
        return "–"
    m, s = mean(seen), sd(seen)
    if metric.unit == "ratio":
        # shares of retransmitted segments are small
        return f"{100 * m:.3g}% ± {100 * s:.3g}%"
    return f"{quantities.number(m, metric.unit)} ± {quantities.number(s, metric.unit)}"


VERDICTS = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "bold red",
    Verdict.TOO_FEW: "yellow",
    Verdict.INVALID: "yellow",
}
WORDS = {Verdict.NOT_SHOWN: "no difference shown", Verdict.NO_EFFECT: "no difference that matters"}


def row(one: Contrast, finding: Finding, arms: Any) -> tuple[Any, ...]:
    """A metric of two switches: the second against the first."""
    e = finding.effect

    def change(value: float) -> str:
        if e.absolute:
            # percentage points: a loss of 5 % that becomes 12 % has not grown by 7 %
            ratio = finding.metric.unit == "ratio"
            return f"{100 * value:+.3g} points" if ratio else quantities.difference(value)
        return quantities.change(value)

    return (
        f"{arms[one.b].name} against {arms[one.a].name}", finding.metric.name, change(e.change),
        " … ".join(map(change, e.interval or ())) or "–", f"{finding.p_holm:.2g}",
        Text(WORDS.get(finding.verdict, finding.verdict.value), style=VERDICTS.get(finding.verdict, "")),
    )  # fmt: skip
