"""k6 scripts as profiles; what a profile cannot say is named by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.importer import k6
from netdyno.importer.plan import Faults, profile

HEAD = "import http from 'k6/http';\nimport { check, sleep, group } from 'k6';\n"


def made(script: str, **environment: str) -> dict[str, Any]:
    """The profile of a script."""
    faults = Faults("s.js")
    found = profile(k6.load(script.encode(), "s.js", environment, faults), faults, 600)
    faults.check()
    return found


def users(body: str, options: str = "{}", **environment: str) -> dict[str, Any]:
    """The group of a script with this function and these options."""
    text = f"{HEAD}export const options = {options};\nexport default function () {{\n{body}\n}}\n"
    group = made(text, **environment)["groups"][0]
    assert isinstance(group, dict)
    return group


def http(body: str, **environment: str) -> dict[str, Any]:
    found = users(body, **environment)["model"]["http"]
    assert isinstance(found, dict)
    return found


def faults(script: str) -> list[tuple[int, str]]:
    """Line and words of what is wrong."""
    with pytest.raises(Error) as raised:
        made(script)
    every = raised.value.all or [raised.value.as_dict()]
    assert {one["code"] for one in every} == {"ND-104-75"}
    return [(int(one["at"].split(":")[1]), one["what"]) for one in every]


def test_a_script_as_people_write_it() -> None:
    script = Path(__file__).with_name("shop.js").read_text()
    found = made(script, BASE="http://192.0.2.1:81")
    assert found["phases"] == {"warmup": "0s", "measure": "6s"}
    group = found["groups"][0]
    assert (group["target"], group["devices"]) == ("http://192.0.2.1:81", 10)
    assert [stage["devices"] for stage in group["load"]["closed"]["stages"]] == [1, 10, 10, 0]
    model = group["model"]["http"]
    assert (model["path"], model["expect"], model["headers"]) == ("/", ["200"], {"X-Test": "k6"})
    assert (model["pause"], model["pause_spread"]) == ("100ms", "100ms")
    post, get = model["then"]
    assert (post["method"], post["body"]) == ("POST", '{{"name":"x{{y}}","n":3}}')
    assert post["capture"] == {"id": {"json": "/id"}}
    assert (get["path"], get["pause"]) == ("/items/{response.id}", "500ms")
    assert [one["metric"] for one in found["thresholds"]] == [
        "users.delay.response.p95", "users.delay.response.mean", "users.loss",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("{vus: 5, duration: '1m30s'}", {"devices": 5, "load": {"closed": {}}}),
        ("{vus: 3, iterations: 12}", {"devices": 3, "load": {"closed": {}}, "total": 12}),
        ("{vus: 3, iterations: 12, duration: '30s'}", {"devices": 3, "load": {"closed": {}}, "total": 12}),
        (
            "{scenarios: {a: {executor: 'per-vu-iterations', vus: 3, iterations: 4}}}",
            {"devices": 3, "load": {"closed": {}}, "total": 12},
        ),
        (
            "{scenarios: {a: {executor: 'constant-arrival-rate', rate: 500, duration: '3s', preAllocatedVUs: 50}}}",
            {"devices": 50, "load": {"closed": {"ramp": "100ms"}}},
        ),
        (
            "{scenarios: {a: {executor: 'ramping-arrival-rate', startRate: 60, timeUnit: '1m', preAllocatedVUs: 2,"
            " stages: [{duration: '2s', target: 600}]}}}",
            {
                "devices": 2,
                "load": {"open": {"rate": "1/s", "stages": [{"over": "2s", "rate": "10/s"}]}},
            },
        ),
    ],
)
def test_executors(options: str, expected: dict[str, Any]) -> None:
    group = users("http.get('http://h/');", options)
    assert {key: group[key] for key in expected} == expected
    assert ("total" in group) == ("total" in expected)
    if "500" in options:
        assert group["model"]["http"]["interval"] == "100000000ns", "50 users share 500 requests a second"


def test_what_differs_from_k6_is_noted() -> None:
    script = f"{HEAD}export const options = {{scenarios: {{a: {{executor: 'constant-arrival-rate', rate: 5,"
    script += " duration: '3s', preAllocatedVUs: 5}}};\nexport default () => {\n http.get('http://h/a'); sleep(1); }\n"
    faulty = Faults("s.js")
    plan = k6.load(script.encode(), "s.js", {}, faulty)
    found = profile(plan, faulty, 600)
    faulty.check()
    assert found["groups"][0]["model"]["http"]["requests"] == 1
    assert any("a connection of its own" in note for note in plan.notes)
    assert any("Redirects are not followed" in note for note in plan.notes)


def test_scenarios_have_functions_of_their_own() -> None:
    text = f"""{HEAD}
export const options = {{ scenarios: {{
  read: {{ executor: 'constant-vus', vus: 2, duration: '4s', exec: 'look' }},
  write: {{ executor: 'constant-vus', vus: 1, duration: '2s', exec: 'add' }} }},
  thresholds: {{ http_reqs: ['rate>10'] }}, insecureSkipTLSVerify: true }};
export function look() {{ http.get('https://h/a'); }}
export const add = () => http.put('https://h/b', 'x');
"""
    found = made(text)
    read, write = found["groups"]
    assert (read["name"], read["tls"], write["model"]["http"]["method"]) == (
        "read",
        {"insecure": True},
        "PUT",
    )
    stages = [(one["over"], one["devices"]) for one in write["load"]["closed"]["stages"]]
    assert stages == [("0s", 1), ("2s", 1), ("0s", 0)], "it ends before the other"
    assert [one["metric"] for one in found["thresholds"]] == [
        "read.messages_delivered.rate", "write.messages_delivered.rate",
    ]  # fmt: skip


def test_values_of_responses_and_of_the_environment() -> None:
    body = """const login = http.post(`${__ENV.URL}/login`, {user: 'a b', pass: 'x&y'});
    const token = login.json().data.token;
    const place = login.headers['Location'];
    const params = { headers: { Authorization: `Bearer ${token}` }, tags: { name: 'x' } };
    http.del(`http://h${place}?q=${encodeURIComponent('ü')}`, null, params);"""
    model = http(body, URL="http://h")
    assert model["body"] == "user=a+b&pass=x%26y"
    assert model["headers"] == {"Content-Type": "application/x-www-form-urlencoded"}
    assert model["capture"] == {"token": {"json": "/data/token"}, "place": {"header": "Location"}}
    last = model["then"][0]
    assert (last["method"], last["path"]) == ("DELETE", "{response.place}?q=%C3%BC")
    assert last["headers"] == {"Authorization": "Bearer {response.token}"}


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("(r) => r.status === 201", ["201"]),
        ("r => r.status == 200 || r.status == 304", ["200", "304"]),
        ("(r) => r.status >= 200 && r.status < 300", ["200-299"]),
        ("function (r) { return r.status < 400; }", ["100-399"]),
    ],
)
def test_checks_of_the_status(check: str, expected: list[str]) -> None:
    assert http(f"check(http.get('http://h/'), {{'x': {check}}});")["expect"] == expected


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("1.5", ("1500ms", None)),
        ("Math.random() * 2 + 1", ("1s", "2s")),
        ("randomIntBetween(1, 3)", ("1s", "2s")),
    ],
)
def test_rests(rest: str, expected: tuple[str, str | None]) -> None:
    model = http(f"http.get('http://h/'); sleep({rest});")
    assert (model["pause"], model.get("pause_spread")) == expected


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("import ws from 'k6/ws';", "the module k6/ws"),
        ("const data = open('./x.json');", "open('./x.json')"),
        ("export const options = { hosts: {} };", "the option hosts"),
        ("export const options = { thresholds: { x: ['p(95)<1'] } };", "the threshold x"),
        ("export const options = { scenarios: { a: { executor: 'externally-controlled' } } };", "externally"),
        ("export function setup() {}", "`setup`"),
    ],
)
def test_what_has_no_counterpart_outside(lines: str, what: str) -> None:
    found = faults(f"{HEAD}{lines}\nexport default function () {{ http.get('http://h/'); }}\n")
    assert any(line == 3 and what in words for line, words in found), found


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("if (Math.random() < 0.5) { http.get('http://h/b'); }", "if (Math.random()"),
        ("for (let i = 0; i < 3; i++) { http.get('http://h/b'); }", "for (let i"),
        ("http.batch([['GET', 'http://h/b']]);", "http.batch"),
        ("check(r, { 'body': (r) => r.body.includes('x') });", "the check 'body'"),
        ("http.get('http://other/b');", "http://other is another server"),
        ("http.get(`http://h/${Date.now()}`);", "Date.now()"),
        ("http.get('http://h/b', { cookies: { a: 'b' } });", "the parameter cookies"),
        ("sleep(r.timings.duration);", "no value before"),
        ("counter.add(1);", "counter.add"),
        ("params.headers['X'] = 'y';", "params.headers['X']"),
    ],
)
def test_what_has_no_counterpart_inside(statement: str, what: str) -> None:
    found = faults(
        f"{HEAD}export default function () {{\nconst r = http.get('http://h/');\n{statement}\n}}\n"
    )
    assert any(line == 5 and what in words for line, words in found), found


def test_what_is_no_script() -> None:
    assert faults("export default function ( {")[0][0] == 1
    assert "sends no HTTP request" in faults("export default function () {}")[0][1]
    assert "no function is called default" in faults(HEAD)[0][1]


def test_a_script_that_is_cut_off_or_damaged_is_refused_or_converted() -> None:
    text = Path(__file__).with_name("shop.js").read_text()
    for at in range(0, len(text), 7):
        for script in (text[:at], text[:at] + "}" + text[at:], text[:at] + text[at + 5 :]):
            try:
                made(script)
            except Error as e:
                assert e.code == "ND-104-75", script


@pytest.mark.parametrize(
    "text",
    [
        "function f() { f(); }\nexport default function () { f(); }",
        "".join(f"function f{i}() {{ f{i + 1}(); f{i + 1}(); }}\n" for i in range(40))
        + "function f40() {}\nexport default function () { f0(); }",
        "const a0 = 'xxxxxxxx';\n" + "".join(f"const a{i + 1} = a{i} + a{i};\n" for i in range(60)),
        "const a0 = [1];\n"
        + "".join(f"const a{i + 1} = [a{i}, a{i}];\n" for i in range(60))
        + "const t = JSON.stringify(a60);",
        "const a = " + "(" * 5000 + "1" + ")" * 5000 + ";",
        "export const options = {vus: 1e999, duration: '1s'};\nexport default function () {}",
        "export default function () { http.get('http://h/'); sleep(1e308 * 1e308); }",
        "export default function () { http.get('http://h/'); sleep(-1); }",
        "export const options = {scenarios: {a: {executor: 'constant-arrival-rate', rate: 0, duration: '1s',"
        " preAllocatedVUs: 1}}};\nexport default function () { http.get('http://h/'); }",
    ],
)
def test_a_script_without_end_is_refused_soon(text: str) -> None:
    with pytest.raises(Error) as raised:
        made(HEAD + text)
    assert raised.value.code == "ND-104-75"


def test_values_of_responses_are_found_in_what_is_encoded() -> None:
    body = """const form = http.get('http://h/form');
    const csrf = form.json('csrf');
    http.post(`http://h/a?t=${encodeURIComponent(csrf)}`, {csrf: csrf, name: 'a b'});"""
    last = http(body)["then"][0]
    assert (last["path"], last["body"]) == ("/a?t={response.csrf}", "csrf={response.csrf}&name=a+b")
