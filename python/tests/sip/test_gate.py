"""Conformance before a load: who fails a test is not loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.cli import app

from .served import DOMAIN, server

pytestmark = pytest.mark.slow

QUICK = ("--rate", "20/s", "--duration", "300ms", "--warmup", "0s", "--quiet", "--conformance")
USER = ("--domain", DOMAIN, "--user", "alice", "--password", "wonderland")


def test_a_server_that_fails_a_test_is_loaded_only_if_that_is_waived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server("proxy", fault="R07") as one:
        words = ["sip", "register", f"sip:{one.address}", *QUICK, *USER, "--runs", str(tmp_path / "runs")]
        assert app.call(words) == 99
        said = capsys.readouterr().err
        assert "R07 fail" in said and "no load" in said
        assert not (tmp_path / "runs").exists()
        assert app.call([*words, "--waive", "r07"]) in (0, 90)
        assert "0 fail" in capsys.readouterr().err
        assert (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("register", "sip:127.0.0.1", "--waive", "R07"), "no test is run before"),
        (("register", "sip:127.0.0.1", "--conformance", "--waive", "R77"), "there is no test R77"),
        (("call", "sips:127.0.0.1", "--conformance"), "not TLS"),
        (("load", "sip:127.0.0.1", "--conformance", "--user", "{users.name}"), "from elsewhere"),
        (("search", "register", "sip:127.0.0.1", "--conformance", "--auth-user", "x"), "from elsewhere"),
    ],
)
def test_what_cannot_be_tested_is_named(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["sip", *words]) == 104
    assert said in capsys.readouterr().err.replace("\n", " ")
