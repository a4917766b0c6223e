"""A system's demo that an interrupt ends between a change and what takes it back leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netdyno.cli import app, demo
from netdyno.system.interrupt import interrupted
from netdyno.system.journal import journal


def test_what_an_interrupted_demo_has_noted_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "nd-left.sock"

    def run(*_: object) -> None:
        journal().write("path", path=str(made))
        made.touch()
        raise interrupted()

    (word, one), *_ = demo.DEMOS.items()
    monkeypatch.setitem(demo.DEMOS, word, replace(one, run="x:run"))
    monkeypatch.setattr(demo, "loaded", lambda name: run)
    assert app.call(["demo", word]) == 105
    assert not made.exists() and not journal().open_entries
