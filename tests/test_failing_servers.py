"""Every server of `failing/` gets its right verdict over kernel sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from failing.cases import CASES, Case
from failing.harness import Far, document, group, judged
from lab import Lab, root, wire

from netdyno.core.result import Result

pytestmark = root


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """A place for servers."""
    with wire() as cable:
        yield Far(cable, tmp_path_factory.mktemp("far"))


@pytest.fixture(scope="module")
def together(far: Far) -> tuple[int, Result]:
    """One run of all cases, a group each, with a threshold on the errors of each."""
    lab = Lab()
    try:
        with contextlib.ExitStack() as ends:
            servers = [far.run(case, ends) for case in CASES]
            groups = [group(case, server) for case, server in zip(CASES, servers, strict=True)]
            limits = [{"metric": f"{case.name}.errors", "max": 0} for case in CASES]
            path = lab.write("p.json", document(groups, thresholds=limits))
            done = lab.run("run", path, "--json", prefix=far.cable.at_near, timeout=240)
            assert done.folder, done.text
            assert not [fault for server in servers for fault in server.faults]
            return done.code, done.result
    finally:
        lab.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_failing_server_is_told_for_what_it_is(together: tuple[int, Result], case: Case) -> None:
    _, result = together
    assert result.valid, result.reasons
    judged(result, case)


def test_a_run_with_a_failing_server_fails(together: tuple[int, Result]) -> None:
    code, result = together
    assert (code, result.verdict) == (99, "fail")
