"""Each notebook of the examples runs from its first cell to its last, and shows a table and a plot."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest
from lab import ROOT, Lab

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


def test_there_is_one() -> None:
    assert NOTEBOOKS


@pytest.mark.limit(300)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for name in ("NETDYNO_STATE", "NETDYNO_RUNS", "NETDYNO_DAEMON", "TMPDIR"):
        monkeypatch.setenv(name, lab.environment[name])
    # its kernel's own folders
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(lab.base / name.lower()))
    document = nbformat.read(path, as_version=4)
    # as it is kept: without what it showed somewhere else
    assert not any(cell.get("outputs") for cell in document.cells)
    done = nbclient.NotebookClient(document, timeout=240, kernel_name="python3").execute(cwd=str(lab.base))
    shown: list[dict[str, Any]] = [
        dict(output.get("data") or {}) for cell in done.cells for output in cell.get("outputs") or ()
    ]
    assert any("image/png" in one for one in shown)
    assert any("<table" in str(one.get("text/html")) for one in shown)
    delivered = ast.literal_eval(shown[-1]["text/plain"])
    assert len(delivered) == len(list(lab.runs.iterdir())) and all(count > 10 for count in delivered.values())
    assert os.environ["NETDYNO_RUNS"] == str(lab.runs)
