"""Requests that are refused: other hosts, other sites, viewers who act, bodies without end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from netdyno.errors import Error
from netdyno.web import verbs
from netdyno.web.access import OPERATOR, VIEWER, Access
from netdyno.web.app import application
from netdyno.web.guard import BODY, KEY, address
from netdyno.web.start import Jobs
from tests.web.conftest import PORT, SITE, TOKENS, logged_in, post

PRIVATE = ("/api/about", "/api/runs", "/api/runs/x", "/api/schema", "/api/choices", "/report/x", "/compare")
ACTIONS = (
    "/api/validate",
    "/api/convert",
    "/api/start",
    "/api/runs/x/stop",
    "/api/runs/x/pause",
    "/api/runs/x/resume",
)


def code(answer: object) -> str:
    return answer.json()["error"]["code"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", PRIVATE)
def test_without_a_token_there_is_nothing_to_see(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, code(answer)) == (401, "ND-104-13")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ACTIONS)
def test_a_viewer_may_not_act(viewer: TestClient, path: str) -> None:
    answer = post(viewer, path)
    assert (answer.status_code, code(answer)) == (403, "ND-104-18")
    answer = viewer.delete("/api/runs/x", headers={"Origin": SITE, "Content-Type": "application/json"})
    assert code(answer) == "ND-104-18"


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1:80", "127.0.0.1", "127.0.0.1.evil.example:7450"],
)
def test_other_host_names_are_not_served(operator: TestClient, host: str) -> None:
    for path in ("/", "/assets/main.js", "/api/about"):
        answer = operator.get(path, headers={"Host": host})
        assert (answer.status_code, code(answer)) == (403, "ND-104-19")


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"LOCALHOST:{PORT}"])
def test_its_own_names_are(operator: TestClient, host: str) -> None:
    assert operator.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": ""},
        {"Origin": f"https://127.0.0.1:{PORT}"},
        {"Origin": "http://127.0.0.1:8080"},
        # another of our names, but not the one that was asked
        {"Origin": f"http://localhost:{PORT}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_another_site_cannot_act_with_our_cookie(operator: TestClient, headers: dict[str, str]) -> None:
    for path in ("/api/start", "/api/login", "/api/logout"):
        answer = post(operator, path, **headers)
        assert (answer.status_code, code(answer)) == (403, "ND-104-19")
    assert operator.get("/api/about").json()["role"] == OPERATOR


@pytest.mark.parametrize("key", ["", "guess", "another's"])
def test_a_cookie_alone_changes_nothing(operator: TestClient, key: str) -> None:
    """A browser sends it to servers at other ports of our host, too."""
    if key == "another's":
        key = post(operator, "/api/login", {"token": TOKENS[VIEWER]}).json()["key"]
        operator = logged_in(operator, OPERATOR)
    operator.headers[KEY] = key
    for path in ("/api/start", "/api/convert"):
        answer = post(operator, path)
        assert (answer.status_code, code(answer)) == (401, "ND-104-13")
    assert operator.get("/api/about").json()["role"] == OPERATOR


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_form_cannot_act(operator: TestClient, kind: str) -> None:
    answer = post(operator, "/api/logout", Content_Type=kind)
    assert (answer.status_code, code(answer)) == (415, "ND-104-10")


def test_a_stream_is_only_read(operator: TestClient) -> None:
    answer = post(operator, "/api/runs")
    assert answer.status_code == 405 and "GET" in answer.headers["allow"]


def test_a_target_in_absolute_form_counts_in_place_of_the_host(operator: TestClient) -> None:
    def asked(target: str, host: str) -> int:
        scope = {
            "type": "http", "method": "GET", "path": target, "raw_path": target.encode(), "query_string": b"",
            "headers": [(b"host", host.encode())], "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 9),
        }  # fmt: skip
        status: list[int] = []

        async def send(message: Any) -> None:
            status.extend([message["status"]] if "status" in message else [])

        asyncio.run(operator.app(scope, lambda: asyncio.sleep(9), send))  # type: ignore[arg-type]
        return status[0]

    assert asked(f"http://127.0.0.1:{PORT}/assets/main.js", "evil.example") == 200
    assert asked("http://evil.example/assets/main.js", f"127.0.0.1:{PORT}") == 403


def test_the_cookie_is_for_this_site_and_no_script(client: TestClient) -> None:
    made = post(client, "/api/login", {"token": TOKENS[OPERATOR]}).headers["set-cookie"].lower()
    assert made.startswith(f"netdyno_{PORT}=")
    assert "httponly" in made
    assert "samesite=strict" in made
    assert "domain" not in made
    assert TOKENS[OPERATOR] not in made


def test_a_program_shows_the_token_itself(client: TestClient) -> None:
    bearer = {"Authorization": f"Bearer {TOKENS[OPERATOR]}"}
    assert client.get("/api/about", headers=bearer).json()["role"] == OPERATOR
    answer = client.post("/api/convert", json={"document": {"a": 1}}, headers=bearer)
    assert answer.json() == {"text": "a: 1\n"}
    assert code(client.get("/api/about", headers={"Authorization": "Bearer guess"})) == "ND-104-13"


def test_wrong_tokens_are_counted(client: TestClient) -> None:
    seen = [post(client, "/api/login", {"token": "guess"}).status_code for _ in range(12)]
    assert seen == [401] * 10 + [429] * 2
    for body in ({}, {"token": 5}, {"token": None}):
        assert post(client, "/api/login", body).status_code == 429


def test_logging_out_ends_the_session(operator: TestClient) -> None:
    cookie = operator.cookies.get(f"netdyno_{PORT}")
    assert post(operator, "/api/logout").status_code == 200
    answer = operator.get("/api/about", headers={"Cookie": f"netdyno_{PORT}={cookie}"})
    assert answer.status_code == 401


def test_every_answer_carries_the_policy(operator: TestClient, run: str) -> None:
    for path in ("/", "/assets/main.js", "/api/about", "/api/runs/none", "/nothing", f"/report/{run}"):
        headers = operator.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_a_report_has_no_rights_here(operator: TestClient, run: str) -> None:
    policy = operator.get(f"/report/{run}").headers["content-security-policy"]
    sandbox = policy.partition(";")[0].split()
    assert sandbox[0] == "sandbox"
    assert "allow-same-origin" not in sandbox


def test_a_body_at_the_limit_is_read_and_one_beyond_is_not(operator: TestClient) -> None:
    room = BODY - len('{"text": ""}')
    answer = post(operator, "/api/convert", {"text": "#" * room})
    assert "a request of over" not in answer.json()["error"]["what"], "it is read, and too long for a profile"
    answer = post(operator, "/api/convert", {"text": "#" * (room + 1)})
    assert "a request of over" in answer.json()["error"]["what"]


def test_a_body_without_a_length_is_limited_too(operator: TestClient) -> None:
    def chunks() -> object:
        for _ in range(BODY // 65536 + 2):
            yield b"#" * 65536

    headers = {"Origin": SITE, "Content-Type": "application/json"}
    answer = operator.post("/api/convert", content=chunks(), headers=headers)  # type: ignore[arg-type]
    assert code(answer) == "ND-104-32"


@pytest.mark.parametrize(
    ("host", "one"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_attempts_are_counted_by_host(host: str, one: str) -> None:
    assert address({"type": "http", "client": (host, 5)}) == one


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("lab.example.org", "http://lab.example.org:7450"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("[::1]:80", "http://[::1]"),
        ("https://Lab.example.org/", "https://lab.example.org"),
        ("https://lab.example.org:8443", "https://lab.example.org:8443"),
    ],
)
def test_a_tunnel_or_a_reverse_proxy_is_named(name: str, origin: str, access: Access, tmp_path: Path) -> None:
    named = verbs._origin(name, "http", PORT)
    assert named == origin
    app = application(access, Jobs(tmp_path / "runs"), [SITE, named], PORT)
    host = origin.partition("://")[2]
    with TestClient(app, base_url=SITE) as client:
        # the proxy hands on the name that the browser asked for
        token = {"token": TOKENS[OPERATOR]}
        made = post(client, "/api/login", token, Origin=origin, Host=host)
        assert made.status_code == 200
        secure = origin.startswith("https")
        assert ("; secure" in made.headers["set-cookie"].lower()) is secure
        # browsers do not let a page without TLS replace one that goes over TLS alone
        (cookie,) = client.cookies.jar
        assert cookie.name == f"netdyno_{PORT}" + "_tls" * secure
        headers = {"Cookie": f"{cookie.name}={cookie.value}", "Host": host}
        assert client.get("/api/about", headers=headers).json()["role"] == OPERATOR
        for other in (SITE, "http://evil.example", origin.replace("//", "//x.")):
            assert code(post(client, "/api/login", token, Origin=other, Host=host)) == "ND-104-19"


@pytest.mark.parametrize("name", ["https://lab.example.org/netdyno/", "ftp://x", "a:b", "me@lab", "http://["])
def test_what_is_no_place_of_a_dashboard_is_refused(name: str) -> None:
    with pytest.raises(Error, match="no address of the dashboard"):
        verbs._origin(name, "http", PORT)


def test_at_all_interfaces_every_address_is_served_and_no_other_name(access: Access, tmp_path: Path) -> None:
    app = application(access, Jobs(tmp_path / "runs"), [SITE], PORT, addresses=True)
    token = {"token": TOKENS[OPERATOR]}
    with TestClient(app, base_url=SITE) as client:
        for host in (f"10.94.0.100:{PORT}", f"[fd94::100]:{PORT}"):
            assert client.get("/", headers={"Host": host}).status_code == 200
            origin = f"http://{host}"
            assert post(client, "/api/login", token, Origin=origin, Host=host).status_code == 200
            refused = post(client, "/api/login", token, Origin=f"http://10.94.0.7:{PORT}", Host=host)
            assert code(refused) == "ND-104-19"
        for host in (
            "10.94.0.100:80",
            "10.94.0.100",
            f"10.94.0.100.evil.example:{PORT}",
            f"fd94::100:{PORT}x",
        ):
            assert code(client.get("/", headers={"Host": host})) == "ND-104-19", host
