"""The folder of a trial's logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdyno.system.journal import restore

root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")

KILLED = """
import contextlib, os
from netdyno.system.journal import journal
from netdyno.tuning.bench import Spec, start_bench
with contextlib.ExitStack() as stack:
    start_bench(stack, Spec(workload="udp-burst"), {}, None, False, journal())
    os.kill(os.getpid(), 9)
"""


@root
def test_a_trial_that_is_killed_leaves_no_folder(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert done.returncode == -9
    assert list(tmp_path.glob("nd-bench-*"))
    report = restore()
    assert not report.failed
    assert not list(tmp_path.glob("nd-bench-*"))
