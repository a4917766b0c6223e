"""When a run that is watched is over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from netdyno.core.result import Result
from netdyno.store import Store
from netdyno.system import proc
from netdyno.web.sources import WRITES, RunSource
from tests.report import sample


@pytest.mark.parametrize("ends", [True, False])
def test_it_waits_for_what_its_process_still_writes(ends: bool, tmp_path: Path) -> None:
    result = Result.model_validate(sample.result())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            with Store() as store:
                store.begin(result, tmp_path)
                owner = f"{process.pid} {proc.start_time(process.pid)}"
                with store._change() as db:
                    db.execute("UPDATE runs SET owner = ?", (owner,))
            source = RunSource(result.id, tmp_path)
            assert not source.is_over(1.0)
            with Store() as store:
                store.finish(result)
            assert not source.is_over(2.0), "its process may still write"
            if ends:
                process.kill()
                process.wait()
                assert source.is_over(3.0)
            else:
                assert not source.is_over(2.0 + WRITES)
                assert source.is_over(2.1 + WRITES), "it does not wait for ever"
        finally:
            process.kill()


def test_one_that_was_over_before_is_over(tmp_path: Path) -> None:
    result = Result.model_validate(sample.result())
    with Store() as store:
        store.put(result, tmp_path)
    assert RunSource(result.id, tmp_path).is_over(1.0)
