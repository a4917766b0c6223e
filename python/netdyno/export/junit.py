"""JUnit XML: a test case for validity, for each threshold and for each check, for CI servers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from netdyno import files
from netdyno.core import causes
from netdyno.core.result import GroupSummary, Leg, Result, ThresholdResult
from netdyno.escape import lines, visible
from netdyno.report import units
from netdyno.report.verdict import failing, interruption, missed
from netdyno.stats.last_answer import last_answer_time


def junit(result: Result) -> str:
    """The result as a test suite.

    An invalid measurement is an error, a failed threshold or check a failure. A threshold for which nothing
    was measured is skipped in a run that fails, and else an error, as the run did not pass. Where there is no
    verdict nothing has passed: what else would be a pass is skipped, and says why.
    """
    unjudged = result.no_verdict
    suite = ET.Element("testsuite", name=f"netdyno.{result.name}", timestamp=result.started, id=result.id)
    case = _case(suite, "validity", result.name)
    if result.error:
        ET.SubElement(
            case, "error", message=str(result.error.get("what")), type=str(result.error.get("code"))
        )
    elif not result.valid:
        text = "\n".join(
            f"{r.code} {r.group or ''} {r.what}: {r.value} (limit {r.limit})" for r in result.reasons
        )
        stopped = interruption(result)
        message = stopped.text() if stopped else "the measurement is invalid"
        error = ET.SubElement(case, "error", message=message, type="ND-90")
        error.text = text
    for threshold in result.thresholds:
        bound = units.exact(_value_text(threshold.metric, threshold.bound))
        case = _case(suite, f"{threshold.metric} {threshold.side} {bound}", threshold.leg or result.name)
        if not result.valid and not result.error:
            ET.SubElement(case, "skipped", message="not judged: the measurement is invalid")
        elif threshold.value is None:
            # where nothing else fails, this is why the run did not pass
            kind = "error" if result.unmeasured else "skipped"
            node = ET.SubElement(case, kind, message=f"{threshold.metric}: not judged, nothing was measured")
            if kind == "error":
                node.set("type", "ND-90-10")
        elif threshold.failed:
            failure = ET.SubElement(case, "failure", message=missed(threshold).text(), type="ND-99-20")
            failure.text = "\n".join([_basis(threshold), *_failures(result, threshold.leg, threshold.metric)])
        elif unjudged:
            ET.SubElement(case, "skipped", message=unjudged)
    for check in result.checks:
        case = _case(suite, f"{check.group} {check.check}", check.leg or result.name)
        if not check.passed:
            failure = ET.SubElement(case, "failure", message=failing(check).text(), type="ND-99-21")
            failure.text = "\n".join([check.what, *_failures(result, check.leg, check.group)])
        elif unjudged:
            ET.SubElement(case, "skipped", message=unjudged)
    if unjudged:
        ET.SubElement(_case(suite, "verdict", result.name), "skipped", message=unjudged)
    if said := _failures(result):
        ET.SubElement(suite, "system-out").text = "\n".join(said)
    for node in suite.iter():
        # what is no character of XML would make the whole file unreadable
        for key, value in node.attrib.items():
            node.set(key, visible(value))
        node.text = node.text and lines(node.text)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _value_text(metric: str, value: float) -> str:
    """A value in its unit, with plain spaces."""
    return units.show(value, units.unit_of(metric)).replace(units.THIN, " ")


def _basis(threshold: ThresholdResult) -> str:
    """What a value rests on: repetitions and their interval."""
    said = f"trials: {threshold.n}"
    if threshold.interval:
        low, high = (_value_text(threshold.metric, value) for value in threshold.interval)
        said += f", interval: {low} … {high}, confidence: {threshold.confidence:g}"
    return said


def _failures(result: Result, leg: str = "", metric: str = "") -> list[str]:
    """What failed, with causes; of one leg, and of the group that a metric is of, where they are named."""
    legs = [one for one in result.legs if not leg or one.name == leg]
    lines = [
        line
        for one in legs
        for group in one.summary.groups
        if metric.partition(".")[0] in ("", group.name)
        for line in _lines(one, group)
    ]
    return lines + [line for one in legs for line in causes.ports(rep.interfaces for rep in one.repetitions)]


def _lines(leg: Leg, group: GroupSummary) -> list[str]:
    errors = causes.measured(group.errors, group.measured)
    return causes.lines(group.name, group.target, errors, last_answer_time(leg.repetitions, group.name))


def _case(suite: ET.Element, name: str, group: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", name=name, classname=group)


def write(result: Result, path: Path) -> None:
    """Write it to a file."""
    files.write(path, junit(result), shared=True)
