"""The dashboard over a store with one made-up run, asked as a browser asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from netdyno.core.result import Result
from netdyno.store import Store
from netdyno.web.access import OPERATOR, VIEWER, Access
from netdyno.web.app import application
from netdyno.web.guard import KEY
from netdyno.web.start import Jobs
from tests.report import sample

PORT = 7450
SITE = f"http://127.0.0.1:{PORT}"
TOKENS = {OPERATOR: "operator-token-0123456789", VIEWER: "viewer-token-0123456789"}


class Clock:
    """Time that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> Access:
    return Access(TOKENS, clock)


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    """A made-up result, as JSON has it, its trials numbered through all legs as those of a run are."""
    made: dict[str, Any] = json.loads(json.dumps(sample.result()))
    trials = [trial for leg in made["legs"] for trial in leg["repetitions"]]
    for number, trial in enumerate(trials, 1):
        trial["index"] = number
    return made


@pytest.fixture
def run(tmp_path: Path, document: dict[str, Any]) -> str:
    """A finished run, with a file that only an operator may have and one that nobody may."""
    result = Result.model_validate(document)
    folder = tmp_path / "runs" / result.id
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(document))
    (folder / "series.csv").write_text("t\n1\n")
    (folder / "capture.pcapng").write_bytes(b"packets")
    (folder / "other.txt").write_text("nobody's")
    (folder / "flows.csv").symlink_to("/etc/passwd")
    with Store() as store:
        store.put(result, folder)
    return result.id


@pytest.fixture
def client(access: Access, tmp_path: Path) -> Iterator[TestClient]:
    app = application(access, Jobs(tmp_path / "runs"), [SITE, f"http://localhost:{PORT}"], PORT)
    with TestClient(app, base_url=SITE, raise_server_exceptions=False) as one:
        yield one


def post(client: TestClient, path: str, body: Any = None, **headers: str) -> Any:
    """As the page does it; a header that is empty is left out."""
    given = {
        "Origin": SITE,
        "Content-Type": "application/json",
        KEY: client.headers.get(KEY, ""),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    return client.post(path, content=json.dumps(body or {}), headers={k: v for k, v in given.items() if v})


def logged_in(client: TestClient, role: str) -> TestClient:
    """As a browser with a page of ours."""
    found = post(client, "/api/login", {"token": TOKENS[role]}).json()
    assert found["role"] == role
    client.headers[KEY] = found["key"]
    return client


@pytest.fixture
def operator(client: TestClient) -> TestClient:
    return logged_in(client, OPERATOR)


@pytest.fixture
def viewer(client: TestClient) -> TestClient:
    return logged_in(client, VIEWER)
