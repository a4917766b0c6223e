"""Verdicts as JUnit XML: a test case for each test, an inconclusive one skipped with its reason.

A warning passes, with its reason as output of the test case: CI servers know no other place for it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from netdyno.escape import lines, visible
from netdyno.sip.conformance import ladder
from netdyno.sip.conformance.suite import Report


def junit(report: Report) -> str:
    """The results as a test suite."""
    suite = ET.Element(
        "testsuite",
        name=f"sip conformance of {report.server}",
        tests=str(len(report.tests)),
        failures=str(report.count("fail")),
        errors="0",
        skipped=str(report.count("inconclusive")),
    )
    for one in report.tests:
        case = ET.SubElement(
            suite,
            "testcase",
            name=f"{one.id} {one.title}",
            classname=one.role,
            time=f"{one.duration_ms / 1000:.3f}",
        )
        if one.verdict == "fail":
            failure = ET.SubElement(case, "failure", message=visible(one.reason), type="ND-99-30")
            failure.text = lines("\n".join([one.clause, one.reason, *ladder.lines(one.ladder)]))
        elif one.verdict == "warning":
            text = "\n".join([f"warning: {one.clause} recommends it", one.reason, *ladder.lines(one.ladder)])
            ET.SubElement(case, "system-out").text = lines(text)
        elif one.verdict == "inconclusive":
            ET.SubElement(case, "skipped", message=visible(one.reason))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
