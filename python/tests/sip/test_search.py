"""A search that finds nothing says why, in the words of the server that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.cli import app

from .served import DOMAIN, server

SEARCH = ("--domain", DOMAIN, "--rate", "20/s", "--duration", "2s", "--warmup", "0s", "--quiet")


@pytest.mark.slow
def test_a_baseline_of_nothing_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sip", "search", "register", "sip:127.0.0.1:5070", *SEARCH, "-H", "Require: foo"]
    assert app.call([*words, "--runs", str(tmp_path)]) == 90
    said = " ".join(capsys.readouterr().err.split())
    assert "ND-90-30" in said and "420 Bad Extension" in said and "--no-baseline" in said


@pytest.mark.slow
def test_a_server_that_fails_at_any_load_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the requests are rejected: it answers, so it is not lost, and no load passes."""
    with server("proxy", password="wonderland", error_share=0.5, error_status=486) as one:
        words = [
            "sip",
            "search",
            "register",
            f"sip:{one.address}",
            *SEARCH,
            "--no-baseline",
            "--sessions",
            "0",
        ]
        words += ["--repeat", "2", "--rate", "200/s"]
        app.call([*words, "--password", "wonderland", "--runs", str(tmp_path)])
    said = " ".join(capsys.readouterr().out.split())
    assert "even the lowest load" in said or "no load passed" in said, said
    assert "486 Busy Here" in said, said
