from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the disk after a power cut is not what these tests are about."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
