"""The tables of one trial."""

from __future__ import annotations

from netdyno.core import causes, load_unit
from netdyno.core.result import Repetition
from netdyno.core.wire import CauseCount, Distribution, FailureCount, GroupResult, Pauses, StallResult
from netdyno.report import load_names, model_table, portwork, rates, stacks, units
from netdyno.report.series import by_samples
from netdyno.report.table import Cell, Column, Table, data, number
from netdyno.report.text import Data, M
from netdyno.stats import percentile
from netdyno.stats.backlog import hides_delays
from netdyno.stats.pauses import total
from netdyno.stats.summary import is_unconfirmed


def groups(rep: Repetition) -> Table:
    """Counts of what was meant for the measure phase, and the rates they make."""
    own = any(not load_unit.is_messages(load_unit.of(g)) for g in rep.groups)
    note = M("Messages scheduled in the measurement window, whenever the reply came.")
    if own:
        note = M("What fell due in the measurement window, whenever it was completed.")
    table = Table(
        M("Groups"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Devices")),
            Column(M("Counted in"), numeric=False),
            Column(M("Flows done")),
            Column(M("Flows failed")),
            Column(M("Intended")),
            Column(M("Offered")),
            Column(M("Completed") if own else M("Delivered")),
            Column(M("Completed per second") if own else M("Delivered per second")),
            Column(M("Loss")),
            Column(M("Duplicates")),
            Column(M("Out of order")),
            Column(M("Corrupted")),
            Column(M("Stalled, share of the time")),
            Column(M("Longest wait")),
            Column(M("Sent, bit/s")),
            Column(M("Received, bit/s")),
        ],
        note=note,
    )
    for g in rep.groups:
        m, rate, unit = g.measured, g.rates.get, load_unit.of(g)
        asked, loss = load_unit.intended(unit, m), load_unit.loss(g)
        offered, done = (load_unit.count(m, name) for name in (unit.offered, unit.delivered))
        table.add(
            data(g.name, " ".join(filter(None, (g.protocol, g.target)))),
            number(units.count(g.devices), g.devices),
            Cell(load_names.name(unit)),
            number(units.count(m.flows_completed), m.flows_completed),
            number(units.count(m.flows_failed), m.flows_failed),
            number(units.count(asked), asked),
            number(units.count(offered), offered),
            *_delivered(g, done, rate("delivered", rate("messages_delivered"))),
            number(units.percent(loss), loss),
            number(units.count(m.duplicates), m.duplicates),
            number(units.count(m.reordered), m.reordered),
            number(units.count(m.corrupted), m.corrupted),
            *_stalls(g.stalls),
            number(units.scaled(rate("bits_sent"), "bit/s"), rate("bits_sent")),
            number(units.scaled(rate("bits_received"), "bit/s"), rate("bits_received")),
        )
    return table.keep(
        *[True] * 2,
        own,
        *[True] * 7,
        any(g.measured.duplicates for g in rep.groups),
        any(g.measured.reordered for g in rep.groups),
        any(g.measured.corrupted for g in rep.groups),
        *[any(g.stalls and g.stalls.time for g in rep.groups)] * 2,
        True,
        True,
    )


def _delivered(group: GroupResult, count: int, rate: float | None) -> list[Cell]:
    """Messages whose delivery is known, and per second; nothing where nobody confirms any."""
    if is_unconfirmed(group):
        return [Cell(units.NONE, note=M("delivery is not confirmed")), Cell(units.NONE)]
    return [number(units.count(count), count), number(units.rate(rate), rate)]


def _stalls(stalls: StallResult | None) -> list[Cell]:
    if stalls is None:
        return [Cell(units.NONE)] * 2
    share = number(
        units.percent(stalls.share),
        stalls.share,
        note=M("{share} of the devices waited at the end", share=units.percent(stalls.waiting))
        if stalls.waiting
        else None,
    )
    return [share, number(units.duration(stalls.longest), stalls.longest)]


NO_DELAY = M("no delay: all that was answered in this time fell due in the warm-up, as the load was not kept")
"""Why a group has no delays."""


def delays(rep: Repetition) -> Table:
    """Every delay of every group, then how late the generator was for each."""
    table = Table(
        M("Delays and jitter"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Delay"), numeric=False),
            Column(M("Samples")),
            Column(M("Min")),
            Column(M("Mean")),
            Column(M("Median")),
            Column(M("p90")),
            Column(M("p95")),
            Column(M("p99")),
            Column(M("p99.9")),
            Column(M("Max")),
            Column(M("Std. dev.")),
            Column(M("PDV")),
            Column(M("Jitter")),
        ],
        note=M("From the intended send time, so that a stalled server cannot hide its delays."),
    )
    for g in rep.groups:
        for name in by_samples({n: d.count for n, d in g.delays.items()}):
            d = g.delays[name]
            table.add(data(g.name), data(name), *_distribution(d, hidden=hides_delays(g)))
            if (change := g.ipdv.get(name)) is not None:
                told = Cell(M("{delay}, change to the next (IPDV)", delay=Data(name)), f"{name}~ipdv")
                table.add(data(g.name), told, *_distribution(change))
    for g in rep.groups:
        if g.lateness.count:
            table.add(
                data(g.name), Cell(M("lateness of the generator"), "~lateness"), *_distribution(g.lateness)
            )
    return table


def _distribution(d: Distribution, *, hidden: bool = False) -> list[Cell]:
    samples = number(units.count(d.count), d.count, note=NO_DELAY if hidden else None)
    if not d.count:
        return [samples, *[Cell(units.NONE) for _ in range(11)]]
    p999 = d.p999 if d.count >= 1000 else None  # fewer samples do not have a 99.9th percentile
    pdv = d.pdv if p999 is not None else None
    p95 = percentile.of(d, "p95")
    values = (d.min, d.mean, d.p50, d.p90, p95, d.p99, p999, d.max, d.sd, pdv, d.jitter)
    return [samples, *[number(units.duration(v), v) for v in values]]


def reordering(rep: Repetition) -> Table:
    """How far out of order messages came, where any did."""
    table = Table(
        M("Order"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Out of order")),
            Column(M("Share of the messages delivered")),
            Column(M("After three later ones")),
            Column(M("Extent, median")),
            Column(M("Extent, p99")),
            Column(M("Extent, max")),
            Column(M("Late by, median")),
            Column(M("Late by, p99")),
            Column(M("Late by, max")),
        ],
        note=M("RFC 4737: extents in messages, and the time since the first later message."),
    )
    for g in rep.groups:
        if g.reordering and g.measured.reordered:
            extent, late = g.reordering.extent, g.reordering.late
            table.add(
                data(g.name),
                number(units.count(g.measured.reordered), g.measured.reordered),
                number(units.percent(g.reordering.ratio), g.reordering.ratio),
                number(units.percent(g.reordering.by_three), g.reordering.by_three),
                *[number(units.count(v) if extent.count else units.NONE, v)
                  for v in (extent.p50, extent.p99, extent.max)],
                *[number(units.duration(v) if late.count else units.NONE, v)
                  for v in (late.p50, late.p99, late.max)],
            )  # fmt: skip
    return table


def places(rep: Repetition) -> Table:
    """How far from their places messages came, where any did."""
    threshold = max((g.reordering.density.threshold for g in rep.groups if g.reordering), default=0)
    table = Table(
        M("Places"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Not at their place")),
            Column(M("Early")),
            Column(M("Late")),
            Column(M("Places away, p99")),
            Column(M("Places away, max")),
            Column(M("Beyond the threshold")),
            Column(M("Waiting for one expected, mean")),
            Column(M("Waiting, p99")),
            Column(M("Waiting, max")),
        ],
        note=M(
            "RFC 5236, with a threshold of {threshold} messages: the reorder density, and how many messages "
            "a buffer holds that puts them in order. What is lost makes others wait as well.",
            threshold=units.count(threshold),
        ),
    )
    for g in rep.groups:
        order = g.reordering
        if order and (order.displaced or order.waiting.max):
            away, waiting, density = order.displacement, order.waiting, order.density
            early = sum(n for at, n in density.displaced.items() if at < 0)
            late = sum(n for at, n in density.displaced.items() if at > 0)
            table.add(
                data(g.name),
                number(units.percent(order.displaced), order.displaced),
                *[number(units.count(n), n) for n in (early, late, away.p99, away.max)],
                number(units.count(density.displaced_beyond), density.displaced_beyond),
                number(units.significant(waiting.mean, 3), waiting.mean),
                *[number(units.count(n), n) for n in (waiting.p99, waiting.max)],
            )
    return table


def losses(rep: Repetition) -> Table:
    """How what was lost lay in the streams, where anything was."""
    delta = max((g.losses.delta for g in rep.groups if g.losses), default=0)
    table = Table(
        M("Loss patterns"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Loss periods")),
            Column(M("Lost in a row, mean")),
            Column(M("Lost in a row, p99")),
            Column(M("Lost in a row, max")),
            Column(M("From loss to loss, min")),
            Column(M("From loss to loss, median")),
            Column(M("From period to period, median")),
            Column(M("Noticeable")),
        ],
        note=M(
            "RFC 3357, in messages of one stream. A loss is noticeable that comes no more than {delta} "
            "messages after the one before.",
            delta=units.count(delta),
        ),
    )
    for g in rep.groups:
        if g.losses and g.losses.length.count:
            row, distance, between = g.losses.length, g.losses.distance, g.losses.between
            table.add(
                data(g.name),
                number(units.count(row.count), row.count),
                number(units.significant(row.mean, 3), row.mean),
                *[number(units.count(n), n) for n in (row.p99, row.max)],
                *[number(units.count(n) if distance.count else units.NONE, n)
                  for n in (distance.min, distance.p50)],
                number(units.count(between.p50) if between.count else units.NONE, between.p50),
                number(units.percent(g.losses.noticeable), g.losses.noticeable),
            )  # fmt: skip
    return table


def errors(rep: Repetition) -> Table:
    """Errors by kind and cause, with an example of each and what to check."""
    table = Table(
        M("Errors"),
        [
            Column(M("Group"), numeric=False),
            Column(M("Kind"), numeric=False),
            Column(M("Cause"), numeric=False),
            Column(M("Count")),
            Column(M("Whole run")),
            Column(M("Share of the messages sent")),
            Column(M("Example"), numeric=False),
            Column(M("What to check"), numeric=False),
        ],
    )
    for g in rep.groups:
        for e in sorted(g.errors, key=lambda e: -e.count):
            # results of older versions count the whole run
            sent = (g.total if e.total is None else g.measured).messages_sent
            answered = g.total.messages_delivered > 0
            refused = any(one.kind == "refused" for one in g.errors)
            for cause in [*e.causes, *_of_no_cause(e)]:
                share = cause.count / sent if sent else None
                total = cause.count if cause.total is None else cause.total
                table.add(
                    data(g.name),
                    data(e.kind),
                    data(cause.cause),
                    number(units.count(cause.count), cause.count),
                    number(units.count(total), total),
                    number(units.percent(share), share),
                    Cell(Data(cause.example or ""), mark="code"),
                    data(causes.advice(e.kind, cause.cause, g.target, answered=answered, refused=refused)),
                )
    return table


def _of_no_cause(error: FailureCount) -> list[CauseCount]:
    """What is left of a kind when its causes are told; all of it, where none is known."""
    left = error.count - sum(cause.count for cause in error.causes)
    total = None
    if error.total is not None:
        total = error.total - sum(cause.total or 0 for cause in error.causes)
    if error.causes and left <= 0 and not total:
        return []
    example = error.example if not any(cause.example == error.example for cause in error.causes) else None
    return [CauseCount(cause="", count=left, total=total, example=example)]


def interfaces(rep: Repetition) -> Table:
    """Packets and bytes of each interface over the whole run."""
    heads = (
        M("Tx packets"),
        M("Tx bytes"),
        M("Tx, /s"),
        M("Tx, bit/s"),
        M("Rx packets"),
        M("Rx bytes"),
        M("Rx, /s"),
        M("Rx, bit/s"),
        M("Dropped"),
        M("Errors"),
    )
    table = Table(
        M("Interfaces"),
        [Column(M("Interface"), numeric=False), *map(Column, heads)],
        note=M("Over the whole run, with warm-up and drain."),
    )
    took = rep.phases.warmup + rep.phases.measure + rep.phases.drain
    busiest = sorted(rep.interfaces.items(), key=lambda i: -i[1].get("tx_bytes", 0) - i[1].get("rx_bytes", 0))
    for name, c in busiest:
        if not any(c.values()):
            continue
        cells = [data(name)]
        for way in ("tx", "rx"):
            packets, size = c.get(f"{way}_packets", 0), c.get(f"{way}_bytes", 0)
            cells += [number(units.count(packets), packets), number(units.scaled(size, "B"), size)]
            if took > 0:
                cells += [
                    number(units.rate(packets / took), packets / took),
                    number(units.scaled(size * 8 / took, "bit/s"), size * 8 / took),
                ]
            else:
                cells += [Cell(units.NONE), Cell(units.NONE)]
        for what in ("dropped", "errors"):
            n = c.get(f"rx_{what}", 0) + c.get(f"tx_{what}", 0)
            cells.append(number(units.count(n), n))
        table.add(*cells)
    return table


PAUSES = (Column(M("Pauses")), Column(M("Paused")), Column(M("Longest pause")))


def _paused(pauses: Pauses | None) -> list[Cell]:
    if pauses is None:
        return [Cell(units.NONE)] * len(PAUSES)
    times = [number(units.duration(ns) if ns else units.NONE, ns) for ns in (pauses.ns, pauses.longest_ns)]
    return [number(units.count(pauses.count), pauses.count), *times]


def workers(rep: Repetition) -> Table:
    """The generator's own cores."""
    table = Table(
        M("Generator"),
        [
            Column(M("Worker"), numeric=False),
            Column(M("Core")),
            Column(M("CPU")),
            Column(M("Waited for its CPU")),
            *PAUSES,
        ],
    )
    for w in rep.workers:
        table.add(
            number(str(w.worker), w.worker),
            number(units.NONE if w.core is None else str(w.core), w.core),
            number(units.percent(w.cpu), w.cpu),
            number(units.percent(w.starved), w.starved),
            *_paused(w.pauses),
        )
    return table


def hosts(rep: Repetition) -> Table:
    """The hosts of a fleet, and what each of them did."""
    table = Table(
        M("Hosts"),
        [
            Column(M("Host"), numeric=False),
            Column(M("Devices")),
            Column(M("Sent")),
            Column(M("Delivered")),
            Column(M("Clock offset")),
            Column(M("Offset error")),
            Column(M("Began late by")),
            Column(M("State"), numeric=False),
        ],
    )
    for host in rep.hosts:
        devices = sum(host.devices.values())
        sent = sum(one.messages_sent for one in host.measured.values())
        delivered = sum(one.messages_delivered for one in host.measured.values())
        late = host.start_delay
        state: Cell = Cell(M("valid") if host.valid else M("not valid"))
        if host.lost or host.valid is None:
            state = Cell(Data(host.lost)) if host.lost else Cell(units.NONE)
        table.add(
            data(host.name),
            number(units.count(devices), devices),
            number(units.count(sent), sent),
            number(units.count(delivered), delivered),
            number(units.duration(host.clock_offset * 1e9), host.clock_offset),
            number(units.duration(host.clock_error * 1e9), host.clock_error),
            Cell(units.NONE) if late is None else number(units.duration(late * 1e9), late),
            state,
        )
    return table


def ports(rep: Repetition) -> Table:
    """The DPDK ports, and who does which work."""
    table = Table(
        M("Ports"),
        [
            Column(M("Port"), numeric=False),
            Column(M("Device"), numeric=False),
            Column(M("Queues in, out"), numeric=False),
            Column(M("Does by itself"), numeric=False),
            Column(M("Done in software"), numeric=False),
        ],
    )
    for port in rep.ports:
        itself, software = portwork.shares(port)
        queues = f"{port.get('rx_queues', units.NONE)}, {port.get('tx_queues', units.NONE)}"
        table.add(
            data(str(port.get("name", ""))),
            Cell(Data(str(port.get("device", ""))), None, Data(str(port.get("driver", "")))),
            Cell(Data(queues)),
            Cell(Data(", ".join(itself) or units.NONE)),
            Cell(Data(", ".join(software) or units.NONE)),
        )
    return table


def elements(rep: Repetition) -> Table:
    """The packet path: what each element took, gave and dropped, and what it cost."""
    table = Table(
        M("Elements"),
        [
            Column(M("Element"), numeric=False),
            Column(M("Worker")),
            Column(M("Packets in")),
            Column(M("Packets out")),
            Column(M("Dropped")),
            Column(M("Reasons"), numeric=False),
            Column(M("Packets per batch")),
            Column(M("Cycles per packet")),
        ],
    )
    for e in rep.elements:
        drops = {str(k): int(n) for k, n in (e.get("drops") or {}).items() if n}
        why = ", ".join(f"{k} {units.count(n)}" for k, n in sorted(drops.items(), key=lambda d: -d[1]))
        lost, batch, cycles = sum(drops.values()), e.get("packets_per_batch"), e.get("cycles_per_packet")
        table.add(
            data(str(e.get("name", ""))),
            number(str(e.get("worker", units.NONE)), e.get("worker")),
            number(units.count(e.get("packets_in")), e.get("packets_in")),
            number(units.count(e.get("packets_out")), e.get("packets_out")),
            number(units.count(lost), lost),
            Cell(Data(why)),
            number(units.significant(batch) if batch else units.NONE, batch),
            number(units.NONE if cycles is None else units.significant(cycles), cycles),
        )
    return table


def witnesses(rep: Repetition) -> Table:
    """Our count of a thing and somebody else's."""
    table = Table(
        M("Witnesses"),
        [
            Column(M("What was counted"), numeric=False),
            Column(M("Our count")),
            Column(M("Their count")),
            Column(M("Difference")),
            Column(M("Agree"), numeric=False),
        ],
        note=M("Independent counts: by the server, the kernel or a capture."),
    )
    for w in rep.witnesses:
        agree = Cell(M("yes"), 1, mark="good") if w.agree else Cell(M("no"), 0, mark="bad")
        table.add(
            data(w.what),
            number(units.count(w.ours), w.ours),
            number(units.count(w.theirs), w.theirs),
            number(units.count(w.ours - w.theirs), abs(w.ours - w.theirs)),
            agree,
        )
    return table


def duts(rep: Repetition) -> Table:
    """The systems under test, seen from outside."""
    table = Table(
        M("Systems under test"),
        [
            Column(M("Name"), numeric=False),
            Column(M("Driver"), numeric=False),
            Column(M("CPU, mean")),
            Column(M("CPU, max")),
            *PAUSES,
            Column(M("Counters that changed"), numeric=False),
        ],
    )
    for name, d in rep.dut.items():
        used = [p.cpu for p in d.cpu_series]
        changed = {k: d.counters_after[k] - v for k, v in d.counters_before.items() if k in d.counters_after}
        text = ", ".join(f"{k} {'+' if n > 0 else ''}{units.count(n)}" for k, n in changed.items() if n)
        mean = sum(used) / len(used) if used else None
        most = max(used, default=None)
        driver = Cell(Data(d.driver), d.driver, Data(d.version) if d.version else None)
        table.add(
            data(name, d.died),
            driver,
            number(units.percent(mean), mean),
            number(units.percent(most), most),
            *_paused(total([one.pauses for one in d.workers]) if d.workers else None),
            Cell(Data(text or units.NONE), mark="code"),
        )
    return table


def all_tables(rep: Repetition) -> list[Table]:
    """Those that have something to show, in the order of the page; errors and flows stand elsewhere."""
    tables = (
        groups(rep),
        rates.table(rep),
        model_table.own(rep),
        model_table.ratings(rep),
        delays(rep),
        reordering(rep),
        places(rep),
        losses(rep),
        interfaces(rep),
        stacks.table(rep),
        ports(rep),
        elements(rep),
        witnesses(rep),
        hosts(rep),
        workers(rep),
        duts(rep),
    )
    return [t for t in tables if t.rows]


def all_errors(g: GroupResult) -> int:
    """How many errors a group had."""
    return sum(e.count for e in g.errors)
