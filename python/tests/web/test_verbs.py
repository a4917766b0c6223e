"""What `netdyno web` refuses before it says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.cli import app


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        (["--cert", "nowhere.pem"], "Name PEM files that belong together"),
        (["--token-file", "nowhere"], "openssl rand -base64 24 > nowhere"),
        (["--viewer-token-file", "nowhere"], "openssl rand -base64 24 > nowhere"),
        (["--port", "8080"], "Did you mean --listen?"),
    ],
)
def test_a_dashboard_that_cannot_be_names_no_address(
    option: list[str],
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.call(["web", "--listen", "127.0.0.1:0", *option]) == 104
    said = capsys.readouterr()
    assert "token=" not in said.out
    assert fix in " ".join(said.err.split())
