"""Verdict and exit code of runs against single servers of `failing/`: from a URL, and from a profile that judges nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from failing.cases import BARE, URLS, Case
from failing.harness import DEVICES, Far, counted, document, group, shown, url
from lab import Lab, root, wire

pytestmark = root

MACHINE = {"ND-90-01", "ND-90-02", "ND-90-03", "ND-90-08"}
"""Reasons of a machine that is busy with other things; a run from a URL has no say in them."""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """A place for servers."""
    with wire() as cable:
        yield Far(cable, tmp_path_factory.mktemp("far"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", URLS, ids=lambda case: case.name)
def test_the_verdict_on_a_url(lab: Lab, far: Far, case: Case) -> None:
    assert case.protocol.url is not None
    with contextlib.ExitStack() as ends:
        target = url(case, far.run(case, ends))
        options = ("--duration", "1s", "--warmup", "0s", "--devices", str(DEVICES))
        done = lab.run(
            "run",
            target,
            *options,
            *case.protocol.url,
            "--json",
            prefix=far.cable.at_near,
        )
    assert done.result.verdict == case.judged, done.text
    assert {reason.code for reason in done.result.reasons} <= MACHINE, done.text
    assert done.code == (({"pass": 0, "fail": 99}[case.judged]) if done.result.valid else 90), done.text
    shown(case, done.trial.groups[0])
    limits = {one.metric.partition(".")[2] for one in done.result.thresholds}
    assert limits == ({"errors", "loss"} if case.protocol.confirmed else {"errors"})
    lab.clean()


@pytest.mark.parametrize("case", BARE, ids=lambda case: case.name)
def test_without_thresholds_nothing_passes(lab: Lab, far: Far, case: Case) -> None:
    with contextlib.ExitStack() as ends:
        path = lab.write("p.json", document([group(case, far.run(case, ends))]))
        done = lab.run("run", path, "--json", prefix=far.cable.at_near)
    assert done.result.valid, done.text
    assert done.result.verdict == case.bare, done.text
    assert done.code == {"none": 0, "fail": 99}[case.bare], done.text
    counted(case, done.trial.groups[0])
    lab.clean()
