"""k6 scripts: what the function of virtual users requests, checks and rests, and the options around it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tree_sitter import Node

from netdyno.errors import Error
from netdyno.importer.javascript import (
    CLOSE,
    OPEN,
    Constants,
    UnknownError,
    arguments,
    broken,
    callee,
    declared,
    in_text,
    line,
    mark,
    marked,
    parameters,
    parse,
    short,
    text,
)
from netdyno.importer.plan import CODE, Faults, Plan, Ramp, Step, Users, names
from netdyno.importer.texts import escaped

CALLS = 1000
"""Of functions of a script."""
METHODS = {
    "get": "GET", "post": "POST", "put": "PUT", "patch": "PATCH", "del": "DELETE", "head": "HEAD",
    "options": "OPTIONS",
}  # fmt: skip
BODIES = {"post", "put", "patch", "del", "options"}
"""Functions whose second argument is the body."""
MODULES = ("k6", "k6/http")
UTILS = re.compile(r"https://jslib\.k6\.io/k6-utils/")
IGNORED = {
    "discardResponseBodies", "summaryTrendStats", "summaryTimeUnit", "tags", "systemTags", "noUsageReport",
    "cloud", "ext", "setupTimeout", "teardownTimeout", "userAgent", "throw", "batch", "batchPerHost",
    "maxRedirects", "httpDebug",
}  # fmt: skip
"""Options that change nothing of the load, or are told of where they do."""
THRESHOLD = re.compile(r"^\s*(avg|min|med|max|rate|count|p\(\s*([\d.]+)\s*\))\s*(<=?|>=?)\s*([\d.]+)\s*$")
URL = re.compile(rf"(https?://[^/?#{OPEN}]+)(.*)", re.DOTALL)
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86400.0}
JITTER = re.compile(r"^\.json\(\s*\)?")


@dataclass
class _Flow:
    """What a function has done so far."""

    steps: list[Step] = field(default_factory=list)
    responses: dict[str, int] = field(default_factory=dict)
    """Number of the step whose response a variable has."""


def load(data: bytes, name: str, environment: Mapping[str, str], faults: Faults) -> Plan:
    """The plan of a script."""
    root = parse(data)
    try:
        wrong = broken(root)
    except RecursionError as e:
        raise Error(CODE, "it is too deep in itself", at=name) from e
    if wrong is not None:
        raise Error(CODE, f"it is no JavaScript: {short(wrong)!r}", at=f"{name}:{line(wrong)}")
    try:
        return _Script(Path(name).stem, environment, faults).plan(root)
    except (RecursionError, OverflowError, ValueError) as e:
        what = (
            "functions or values are in each other without end" if isinstance(e, RecursionError) else str(e)
        )
        raise Error(CODE, what, at=name, fix="Write them out") from e


class _Script:
    def __init__(self, name: str, environment: Mapping[str, str], faults: Faults) -> None:
        self._constants = Constants(environment)
        self._faults = faults
        self._plan = Plan(name)
        self._functions: dict[str, Node] = {}
        self._options: dict[str, Any] = {}
        self._options_line = 1
        self._calls = 0

    def plan(self, root: Node) -> Plan:
        for node in root.named_children:
            try:
                self._top(node)
            except UnknownError as e:
                self._faults.add(e.line, e.what, "Name values of __ENV with -J, and write others as they are")
        options = self._options
        for key in options:
            if key not in KNOWN | IGNORED:
                self._faults.add(self._options_line, f"the option {key} has no counterpart", "Remove it")
        self._plan.insecure = bool(options.get("insecureSkipTLSVerify"))
        scenarios = options.get("scenarios") or {"users": _shortcut(options)}
        if not isinstance(scenarios, dict):
            scenarios = {}
            self._faults.add(self._options_line, "`scenarios` is no object of scenarios")
        for title, (key, scenario) in zip(names(list(scenarios)), scenarios.items(), strict=True):
            self._scenario(title, key, scenario if isinstance(scenario, dict) else {})
        self._thresholds(options.get("thresholds") or {})
        if any(step.expect == ("2xx",) for users in self._plan.users for step in users.round):
            self._plan.notes.append("Redirects are not followed: a response of the class 3xx is no success")
        return self._plan

    def _top(self, node: Node) -> None:
        """A statement outside all functions."""
        match node.type:
            case "comment" | "hash_bang_line" | "empty_statement":
                return
            case "import_statement":
                module = self._constants.value(_field(node, "source"))
                if module not in MODULES and not UTILS.match(str(module)):
                    fix = "k6, k6/http and k6-utils are known"
                    self._faults.add(line(node), f"the module {module} has no counterpart", fix)
            case "export_statement":
                inside = node.child_by_field_name("declaration") or node.child_by_field_name("value")
                if inside is None:
                    raise UnknownError(node, f"`{short(node)}` has no counterpart")
                if inside.type in FUNCTIONS:
                    self._functions[
                        "default"
                        if any(c.type == "default" for c in node.children)
                        else text(inside.child_by_field_name("name"))
                    ] = inside
                else:
                    self._top(inside)
            case "function_declaration":
                self._functions[text(node.child_by_field_name("name"))] = node
            case "lexical_declaration" | "variable_declaration":
                for name, value in declared(node):
                    if value is not None and value.type in FUNCTIONS:
                        self._functions[text(name)] = value
                    elif value is not None:
                        self._constants.values[text(name)] = self._constants.value(value)
                    if text(name) == "options":
                        self._options_line = line(name)
                        found = self._constants.values.get("options")
                        self._options = found if isinstance(found, dict) else {}
            case "expression_statement" if callee(node.named_children[0]).startswith("console."):
                return
            case _:
                raise UnknownError(node, f"`{short(node)}` has no counterpart")

    def _scenario(self, title: str, key: str, scenario: dict[str, Any]) -> None:
        function = self._functions.get(str(scenario.get("exec", "default")))
        at = self._options_line
        for unused in ("setup", "teardown"):
            if unused in self._functions:
                self._faults.add(
                    line(self._functions[unused]),
                    f"`{unused}` has no counterpart",
                    "Move its requests into the users' function",
                )
        if function is None:
            self._faults.add(at, f"no function is called {scenario.get('exec', 'default')}", "Export one")
            return
        flow = _Flow()
        body = function.child_by_field_name("body")
        assert body is not None
        outer = dict(self._constants.values)
        self._block(body, flow)
        self._constants.values = outer
        steps = flow.steps
        if steps and steps[0].pause < 0:  # a rest before the first request is that behind the last
            steps = steps[1:]
        if _seconds(scenario.get("startTime", 0)):
            self._faults.add(at, f"{key} begins later than the others", "All users begin together")
        try:
            users = _users(line(function), title, steps, scenario)
        except (ValueError, TypeError, KeyError, OverflowError) as e:
            self._faults.add(
                at, f"the scenario {key}: {e}", "See https://grafana.com/docs/k6/latest/using-k6/scenarios"
            )
            return
        reuse = not (self._options.get("noConnectionReuse"))
        if self._options.get("noVUConnectionReuse") and reuse and len(steps) > 1:
            self._faults.add(
                at, "noVUConnectionReuse has no counterpart", "Remove it: users keep their connection"
            )
        self._plan.users.append(replace(users, reuse=reuse and not self._options.get("noVUConnectionReuse")))

    def _block(self, block: Node, flow: _Flow) -> None:
        for node in block.named_children if block.type == "statement_block" else [block]:
            try:
                self._statement(node, flow)
            except UnknownError as e:
                self._faults.add(
                    e.line, e.what, "Requests, checks of the status, rests and values of responses are known"
                )

    def _statement(self, node: Node, flow: _Flow) -> None:
        match node.type:
            case "comment" | "empty_statement":
                return
            case "lexical_declaration" | "variable_declaration":
                for name, value in declared(node):
                    if value is not None:
                        self._assign(name, value, flow)
            case "expression_statement":
                inside = node.named_children[0]
                if inside.type == "assignment_expression":
                    self._assign(_field(inside, "left"), _field(inside, "right"), flow)
                else:
                    self._expression(inside, flow)
            case "call_expression":
                self._expression(node, flow)
            case _:
                raise UnknownError(node, f"`{short(node)}` has no counterpart")

    def _assign(self, name: Node, value: Node, flow: _Flow) -> None:
        if name.type != "identifier":
            raise UnknownError(name, f"`{text(name)}` cannot be assigned to")
        called = callee(value)
        if called.startswith("http."):
            self._expression(value, flow)
            flow.responses[text(name)] = len(flow.steps) - 1
            return
        found = self._of_response(value, flow)
        if found is None:
            self._constants.values[text(name)] = self._constants.value(value)
            return
        number, where = found
        key = re.sub(r"\W", "_", text(name))
        step = flow.steps[number]
        flow.steps[number] = replace(step, capture={**step.capture, key: where})
        self._constants.values[text(name)] = mark(key)

    def _of_response(self, node: Node, flow: _Flow) -> tuple[int, dict[str, str]] | None:
        """Which response an expression takes a value from, and where that is in it."""
        path: list[str] = []
        while True:
            if node.type == "member_expression" and (called := text(_field(node, "property"))):
                inside = _field(node, "object")
                if text(inside) in flow.responses:
                    return None
                if text(inside).endswith(".headers") and text(inside)[: -len(".headers")] in flow.responses:
                    return flow.responses[text(inside)[: -len(".headers")]], {"header": called}
                path.insert(0, called)
                node = inside
            elif node.type == "subscript_expression":
                inside, index = _field(node, "object"), in_text(self._constants.value(_field(node, "index")))
                if text(inside).endswith(".headers") and text(inside)[: -len(".headers")] in flow.responses:
                    return flow.responses[text(inside)[: -len(".headers")]], {"header": index}
                path.insert(0, index)
                node = inside
            elif node.type == "call_expression" and callee(node).endswith(".json"):
                name = callee(node)[: -len(".json")]
                if name not in flow.responses:
                    return None
                given = [in_text(self._constants.value(one)) for one in arguments(node)]
                parts = [*(given[0].split(".") if given else []), *path]
                if any("#" in part or "*" in part for part in parts):
                    raise UnknownError(node, f"`{short(node)}` may be several values")
                return flow.responses[name], {"json": "".join(f"/{part}" for part in parts)}
            elif callee(node) == "JSON.parse" and text(arguments(node)[0]).endswith(".body"):
                name = text(arguments(node)[0])[: -len(".body")]
                return (
                    (flow.responses[name], {"json": "".join(f"/{part}" for part in path)})
                    if name in flow.responses
                    else None
                )
            else:
                return None

    def _expression(self, node: Node, flow: _Flow) -> None:
        called = callee(node)
        given = arguments(node) if node.type == "call_expression" else []
        if called.startswith("http.") and (called[5:] in METHODS or called == "http.request"):
            flow.steps.append(self._request(node, called[5:], given))
        elif called == "sleep":
            self._rest(node, given, flow)
        elif called == "check" and len(given) >= 2:
            self._check(given[0], given[1], flow)
        elif called == "group" and len(given) == 2 and given[1].type in FUNCTIONS:
            self._block(_field(given[1], "body"), flow)
        elif called.startswith("console."):
            return
        elif called in self._functions and called != "default" and not given:
            self._calls += 1
            if self._calls > CALLS:
                raise ValueError(f"functions are called more than {CALLS} times")
            self._block(_field(self._functions[called], "body"), flow)
        else:
            raise UnknownError(node, f"`{short(node)}` has no counterpart")

    def _request(self, node: Node, called: str, given: Sequence[Node]) -> Step:
        values = [self._constants.value(one) for one in given]
        if called == "request":
            method, values = in_text(values[0]).upper(), values[1:]
        else:
            method = METHODS[called]
        with_body = called in BODIES or called == "request"
        url = in_text(values[0])
        body = values[1] if with_body and len(values) > 1 else None
        options = (values[2:3] if with_body else values[1:2]) or [None]
        extra = options[0] or {}
        for key in extra:
            if key not in ("headers", "tags", "timeout", "redirects", "responseType", "responseCallback"):
                self._faults.add(line(node), f"the parameter {key} has no counterpart", "Remove it")
        headers = {
            str(key): self._template(in_text(value)) for key, value in (extra.get("headers") or {}).items()
        }
        if isinstance(body, dict):
            body = marked(urlencode({key: in_text(value) for key, value in body.items()}))
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        parts = URL.match(url)
        if parts is None:
            raise UnknownError(node, f"{url[:60]!r} is no URL of a server")
        redirects = extra.get("redirects") == 0 or self._options.get("maxRedirects") == 0
        agent = self._options.get("userAgent")
        if agent and not any(name.lower() == "user-agent" for name in headers):
            headers["User-Agent"] = escaped(str(agent))
        origin, rest = parts.groups()
        return Step(
            line(node), method, f"{origin}{self._template(rest.split('#')[0])}", headers,
            None if body is None else self._template(in_text(body)), ("200-399",) if redirects else ("2xx",),
        )  # fmt: skip

    def _template(self, value: str) -> str:
        return re.sub(f"{OPEN}(.*?){CLOSE}", lambda found: f"{{response.{found[1]}}}", escaped(value))

    def _rest(self, node: Node, given: Sequence[Node], flow: _Flow) -> None:
        low, spread = self._time(given[0]) if given else (0.0, 0.0)
        if not flow.steps:
            raise UnknownError(node, "a rest before the first request has no counterpart")
        last = flow.steps[-1]
        flow.steps[-1] = replace(last, pause=last.pause + low, spread=last.spread + spread)

    def _time(self, node: Node) -> tuple[float, float]:
        """Least and further seconds of a rest."""
        if callee(node) in ("randomIntBetween",) and len(arguments(node)) == 2:
            low, high = (float(self._constants.value(one)) for one in arguments(node))
            return low, high - low
        if callee(node) == "Math.random":
            return 0.0, 1.0
        if node.type == "parenthesized_expression":
            return self._time(node.named_children[0])
        if node.type == "binary_expression":
            left, right = _field(node, "left"), _field(node, "right")
            operator = text(_field(node, "operator"))
            a, b = self._time(left), self._time(right)
            if operator == "+":
                return a[0] + b[0], a[1] + b[1]
            if operator == "*" and (a[1] == 0 or b[1] == 0):
                return a[0] * b[0], a[1] * b[0] + b[1] * a[0]
        return float(self._constants.value(node)), 0.0

    def _check(self, response: Node, checks: Node, flow: _Flow) -> None:
        if callee(response).startswith("http."):
            self._expression(response, flow)
            number = len(flow.steps) - 1
        elif text(response) in flow.responses:
            number = flow.responses[text(response)]
        else:
            raise UnknownError(response, f"`{short(response)}` is no response")
        for pair in checks.named_children:
            if pair.type != "pair":
                continue
            found = _status(_field(pair, "value"))
            if found is None:
                what = f"the check {text(_field(pair, 'key'))} is not about the status code"
                self._faults.add(
                    line(pair), what, "Checks like r => r.status === 200 are known; remove others"
                )
                continue
            flow.steps[number] = replace(flow.steps[number], expect=found)

    def _thresholds(self, wanted: Any) -> None:
        for metric, conditions in wanted.items() if isinstance(wanted, dict) else ():
            for one in conditions if isinstance(conditions, list) else [conditions]:
                condition = one.get("threshold", "") if isinstance(one, dict) else one
                made = _threshold(str(metric), str(condition))
                if made is None:
                    fix = (
                        "http_req_duration, http_req_waiting, http_req_failed, checks and http_reqs are known"
                    )
                    self._faults.add(self._options_line, f"the threshold {metric}: {condition}", fix)
                else:
                    self._plan.thresholds.append(made)


FUNCTIONS = ("function_declaration", "function_expression", "arrow_function", "function")
KNOWN = {
    "vus", "duration", "iterations", "stages", "scenarios", "thresholds", "insecureSkipTLSVerify",
    "noConnectionReuse", "noVUConnectionReuse",
}  # fmt: skip


def _field(node: Node, name: str) -> Node:
    found = node.child_by_field_name(name)
    if found is None:
        raise UnknownError(node, f"`{short(node)}` has no counterpart")
    return found


def _seconds(value: Any) -> float:
    """A duration of k6: a number of milliseconds, or a text like 1m30s."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) / 1000
    parts = re.findall(r"([\d.]+)(ms|us|µs|ns|s|m|h|d)", str(value))
    if "".join(number + unit for number, unit in parts) != str(value).replace(" ", "") or not parts:
        raise ValueError(f"{value!r} is no duration")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def _shortcut(options: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario that options without scenarios stand for."""
    if "stages" in options:
        return {"executor": "ramping-vus", "startVUs": options.get("vus", 1), "stages": options["stages"]}
    if "duration" in options and "iterations" not in options:
        return {"executor": "constant-vus", "vus": options.get("vus", 1), "duration": options["duration"]}
    return {
        "executor": "shared-iterations",
        "vus": options.get("vus", 1),
        "iterations": options.get("iterations", 1),
    }


def _users(at: int, title: str, steps: list[Step], scenario: Mapping[str, Any]) -> Users:
    executor = scenario.get("executor")
    base = Users(at, title, (), steps)
    vus = int(scenario.get("vus", 1))
    match executor:
        case "constant-vus":
            return replace(base, devices=vus, duration=_seconds(scenario["duration"]))
        case "shared-iterations" | "per-vu-iterations":
            each = vus if executor == "per-vu-iterations" else 1
            return replace(base, devices=vus, rounds=int(scenario.get("iterations", 1)) * each)
        case "ramping-vus":
            stages = [Ramp(_seconds(one["duration"]), float(one["target"])) for one in scenario["stages"]]
            start = float(scenario.get("startVUs", 1))
            stages = [Ramp(0, start), *stages] if start else stages
            return replace(base, devices=max(1, *(round(one.to) for one in stages)), stages=stages)
        case "constant-arrival-rate" | "ramping-arrival-rate":
            unit = _seconds(scenario.get("timeUnit", "1s"))
            devices = int(scenario.get("maxVUs") or scenario["preAllocatedVUs"])
            if executor == "constant-arrival-rate":
                rate = float(scenario["rate"]) / unit
                return replace(base, devices=devices, rate=rate, duration=_seconds(scenario["duration"]))
            rates = [
                Ramp(_seconds(one["duration"]), float(one["target"]) / unit) for one in scenario["stages"]
            ]
            return replace(
                base, devices=devices, rate=float(scenario.get("startRate", 0)) / unit, rates=rates
            )
    raise ValueError(f"the executor {executor} has no counterpart")


def _status(node: Node) -> tuple[str, ...] | None:
    """The status codes of a check like `r => r.status === 200`; `None`: it is about something else."""
    if node.type not in FUNCTIONS:
        return None
    names_, body = parameters(node), node.child_by_field_name("body")
    while body is not None and body.type in (
        "parenthesized_expression",
        "statement_block",
        "return_statement",
    ):
        inside = [child for child in body.named_children if child.type != "comment"]
        body = inside[0] if len(inside) == 1 else None
    if body is None or len(names_) != 1:
        return None
    status = f"{names_[0].strip('()')}.status"
    source = re.sub(r"\s+", "", text(body)).strip("()")
    parts = source.split("||")
    found = [re.fullmatch(re.escape(status) + r"={2,3}(\d{3})", part.strip("()")) for part in parts]
    if all(found):
        return tuple(one[1] for one in found if one)
    between = re.fullmatch(
        re.escape(status) + r"(>=|>)(\d{3})&&" + re.escape(status) + r"(<=|<)(\d{3})", source
    )
    if between:
        low, high = int(between[2]) + (between[1] == ">"), int(between[4]) - (between[3] == "<")
        return (f"{low}-{high}",)
    below = re.fullmatch(re.escape(status) + r"(<=|<)(\d{3})", source)
    return (f"100-{int(below[2]) - (below[1] == '<')}",) if below else None


def _threshold(metric: str, condition: str) -> dict[str, Any] | None:
    """A threshold of ours; `None`: there is none like it."""
    found = THRESHOLD.match(condition)
    if found is None:
        return None
    what, percentile, sign, bound = found[1], found[2], found[3], float(found[4])
    strict = {"strict": True} if "=" not in sign else {}
    below = sign.startswith("<")
    delays = {"http_req_duration": "response", "http_req_waiting": "first_byte"}
    if metric in delays and what not in ("rate", "count"):
        name = f"p{percentile}" if percentile else {"avg": "mean", "med": "p50"}.get(what, what)
        key = "max" if below else "min"
        return {"metric": f"GROUP.delay.{delays[metric]}.{name}", key: f"{bound:g}ms", **strict}
    if metric in ("http_req_failed", "checks") and what == "rate":
        lost = below == (metric == "http_req_failed")
        share = bound if metric == "http_req_failed" else 1 - bound
        return {"metric": "GROUP.loss", "max" if lost else "min": round(share, 9), **strict}
    if metric == "http_reqs" and what in ("rate", "count"):
        name = "messages_delivered.rate" if what == "rate" else "messages_delivered"
        value: Any = f"{bound:g}/s" if what == "rate" else bound
        return {"metric": f"GROUP.{name}", "max" if below else "min": value, **strict}
    return None
