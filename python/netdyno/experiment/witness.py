"""Compare what we count with what the devices under test count themselves."""

from __future__ import annotations

from collections.abc import Mapping

from netdyno.core import models
from netdyno.core.result import DutReport, Witness
from netdyno.core.wire import GroupResult, TrialResult
from netdyno.lab.dut import Dut


def _counted_as(group: GroupResult) -> str | None:
    """Which scheme of a DUT's own counts the group's messages are in."""
    model = models.find(group.protocol)
    return model.schemes[0].name if model.is_counted and model.schemes else None


def witnesses(
    trial: TrialResult,
    duts: Mapping[str, Dut],
    reports: Mapping[str, DutReport],
    reached: Mapping[str, str],
) -> list[Witness]:
    """For each DUT that counted: our messages over the whole run against its own.

    `reached` says which DUT each group's load reaches. Where nothing was lost, what we sent, what it counted
    and what was confirmed are one number; else its count lies between what was confirmed and what was sent.
    """
    found: list[Witness] = []
    if not trial.groups:
        return found
    for name, dut in duts.items():
        report = reports[name]
        if report.died or not report.counters_after:
            continue
        counted = dut.witness(report.counters_before, report.counters_after)
        for scheme, (what, theirs) in counted.items():
            groups = [g for g in trial.groups if reached.get(g.name) == name]
            groups = [g for g in groups if _counted_as(g) == scheme]
            if not groups:
                continue
            sent = sum(g.total.messages_sent for g in groups)
            confirmed = sum(g.total.messages_delivered for g in groups)
            found.append(
                Witness(
                    what=f"{name}: {what}",
                    ours=float(sent),
                    theirs=theirs,
                    agree=confirmed <= theirs <= sent,
                )
            )
    return found
