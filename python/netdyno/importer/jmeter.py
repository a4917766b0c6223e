"""JMeter plans (`.jmx`): HTTP samplers in thread groups, with the timers, headers and extractors around them.

An element acts on the samplers of its branch: what is found on the way down is a [`Scope`].
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote_plus

from netdyno import reading
from netdyno.errors import Error
from netdyno.importer.plan import CODE, ORIGIN, Faults, Plan, Step, Users, names
from netdyno.importer.texts import constants, template
from netdyno.importer.xml import Element, Kind, read

TABLE = 256 << 20
"""Bytes of a CSV file."""
KIND = Kind(CODE, "jmeterTestPlan", "JMeter plan", deepest=64, most=100_000)
LOOPS = 100
"""Requests that a loop controller may stand for."""
IGNORED = {
    "ResultCollector", "Summariser", "BackendListener", "DebugSampler", "ViewResultsFullVisualizer",
    "TestFragmentController", "WorkBench", "DNSCacheManager",
}  # fmt: skip
"""Elements that send nothing and change nothing of what is sent."""
MATCH = {1: "matches", 2: "contains", 8: "equals", 16: "contains"}
"""What a response assertion does, by its number; other bits turn it round."""


@dataclass(frozen=True)
class Scope:
    """What acts on the samplers of a branch."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    """Of the HTTP request defaults: domain, port, protocol, path."""
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0.0
    spread: float = 0.0
    """Rest before each sampler, in seconds."""
    expect: tuple[str, ...] = ()


def load(
    data: bytes, name: str, path: Path, properties: Mapping[str, str], faults: Faults
) -> tuple[Plan, dict[str, str]]:
    """The plan, and the CSV files to write beside the profile, by name."""
    return _Reader(name, path, properties, faults).plan(read(data, name, KIND))


class _Reader:
    def __init__(self, name: str, path: Path, properties: Mapping[str, str], faults: Faults) -> None:
        self._properties, self._faults, self._path = properties, faults, path
        self._values: dict[str, str] = {}
        self._places: dict[str, str] = {}
        """Places of variables in templates."""
        self._files: dict[str, str] = {}
        self._plan = Plan(Path(name).stem)

    def plan(self, root: Element) -> tuple[Plan, dict[str, str]]:
        branch = next((child for child in root.children if child.name == "hashTree"), root)
        tops = list(_pairs(branch))
        for plan, below in tops:
            if plan.name != "TestPlan":
                continue
            self._arguments(plan, "TestPlan.user_defined_variables")
            for element, _ in _pairs(below):
                if element.name == "Arguments":
                    self._arguments(element, None)
                elif not element.name.endswith("ThreadGroup"):
                    self._known(element)
            for element, _ in _all(below):
                self._variables(element)
            groups = [(e, b) for e, b in _pairs(below) if e.name.endswith("ThreadGroup")]
            scope = self._scope(below, Scope())
            titles = names([element.get("testname") or "users" for element, _ in groups])
            for (element, inside), title in zip(groups, titles, strict=True):
                self._threads(element, inside, title, scope)
        self._plan.notes.append("Redirects are not followed: a response of the class 3xx is no success")
        return self._plan, self._files

    def _text(self, element: Element, name: str, default: str = "") -> str:
        """A property of an element, with constants put in."""
        for child in element.children:
            if child.attributes.get("name") == name and not child.children:
                return constants(child.text.strip(), self._values, self._properties)
        return default

    def _template(self, text: str, line: int) -> str:
        def unknown(inside: str) -> None:
            fix = (
                "Constants, -J properties, columns of CSV files, __Random, and values of extractors are known"
            )
            self._faults.add(line, f"${{{inside}}} has no counterpart", fix)

        return template(text, self._places, unknown)

    def _number(self, element: Element, name: str, default: float) -> float:
        text = self._text(element, name)
        try:
            value = float(text) if text else default
            if math.isfinite(value):
                return value
        except ValueError:
            pass
        self._faults.add(element.line, f"{name} is {text!r}, and no number")
        return default

    def _arguments(self, element: Element, inside: str | None) -> None:
        """User-defined variables."""
        for one in _within(element, inside):
            if one.attributes.get("elementType") == "Argument":
                name = self._text(one, "Argument.name") or one.attributes.get("name", "")
                self._values[name] = self._text(one, "Argument.value")

    def _variables(self, element: Element) -> None:
        """What gives variables a value while the plan runs."""
        if element.name == "CSVDataSet":
            self._table(element)
        elif element.name == "RegexExtractor":
            self._places[self._text(element, "RegexExtractor.refname")] = ""
        elif element.name == "JSONPostProcessor":
            self._places[self._text(element, "JSONPostProcessor.referenceNames")] = ""
        for name, place in self._places.items():
            if not place:
                self._places[name] = f"{{response.{name}}}"

    def _table(self, element: Element) -> None:
        """A CSV file: ours has the names of its columns in the first line, and commas."""
        named = self._text(element, "filename")
        columns = [name.strip() for name in self._text(element, "variableNames").split(",") if name.strip()]
        delimiter = self._text(element, "delimiter", ",").replace("\\t", "\t") or ","
        if self._text(element, "stopThread") == "true" or self._text(element, "recycle", "true") == "false":
            fix = "Set recycle to true, and stop to false"
            self._faults.add(element.line, "users end after the last row; here the first row follows", fix)
        where = self._path.parent / named
        try:
            if Path(named).is_absolute() or ".." in Path(named).parts:
                raise ValueError("it is not beside the plan")
            data = reading.content(where, TABLE)
            text = data.decode(self._text(element, "fileEncoding") or "utf-8")
            rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
        except (Error, ValueError, LookupError, csv.Error) as e:
            self._faults.add(element.line, f"{named}: {e}", "Paths are relative to the plan")
            return
        if not columns and rows:
            columns, rows = [name.strip() for name in rows[0]], rows[1:]
        elif self._text(element, "ignoreFirstLine") == "true":
            rows = rows[1:]
        table = re.sub(r"[^A-Za-z0-9_-]", "-", where.stem)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(row for row in rows if row)
        self._files[f"{table}.csv"] = out.getvalue()
        self._plan.tables[table] = f"{table}.csv"
        self._places |= {name: f"{{{table}.{name}}}" for name in columns}

    def _scope(self, branch: Element, scope: Scope) -> Scope:
        """What the elements of one branch add for its samplers."""
        for element, _ in _pairs(branch):
            match element.name:
                case "ConfigTestElement" if element.get("guiclass") == "HttpDefaultsGui":
                    given = {
                        key: self._text(element, f"HTTPSampler.{key}")
                        for key in ("domain", "port", "protocol", "path")
                    }
                    scope = replace(
                        scope, defaults={**scope.defaults, **{k: v for k, v in given.items() if v}}
                    )
                case "HeaderManager":
                    found = dict(scope.headers)
                    for one in _within(element, "HeaderManager.headers"):
                        value = self._template(self._text(one, "Header.value"), one.line)
                        found[self._text(one, "Header.name")] = value
                    scope = replace(scope, headers=found)
                case "ConstantTimer":
                    pause = self._number(element, "ConstantTimer.delay", 300) / 1000
                    scope = replace(scope, pause=scope.pause + pause)
                case "UniformRandomTimer":
                    pause = self._number(element, "ConstantTimer.delay", 0) / 1000
                    spread = self._number(element, "RandomTimer.range", 100) / 1000
                    scope = replace(scope, pause=scope.pause + pause, spread=scope.spread + spread)
                case "ResponseAssertion":
                    scope = replace(scope, expect=(*scope.expect, *self._assertion(element)))
        return scope

    def _assertion(self, element: Element) -> list[str]:
        what = self._text(element, "Assertion.test_field")
        kind = MATCH.get(int(self._number(element, "Assertion.test_type", 16)))
        strings = [child.text.strip() for child in _within(element, "Asserion.test_strings")]
        strings += [child.text.strip() for child in _within(element, "Assertion.test_strings")]
        if (
            what != "Assertion.response_code"
            or kind is None
            or not all(re.fullmatch(r"[1-5]\d\d", s) for s in strings)
        ):
            fix = "Response codes like 200 are checked; remove the assertion, or check them alone"
            self._faults.add(element.line, "a response assertion that is not about status codes", fix)
            return []
        return strings

    def _threads(self, element: Element, branch: Element, title: str, scope: Scope) -> None:
        if element.name != "ThreadGroup":
            kinds = "Thread groups with a number of threads are known"
            self._faults.add(element.line, f"a thread group of the kind {element.name}", kinds)
            return
        text, number = self._text, self._number
        devices = int(number(element, "ThreadGroup.num_threads", 1))
        scheduled = text(element, "ThreadGroup.scheduler") == "true"
        duration = number(element, "ThreadGroup.duration", 0) if scheduled else 0
        if scheduled and number(element, "ThreadGroup.delay", 0):
            self._faults.add(element.line, "it begins later than the others", "All users begin together")
        loops, forever = 1.0, False
        for one in element.children:
            if one.attributes.get("name") == "ThreadGroup.main_controller":
                forever = text(one, "LoopController.continue_forever") == "true" and not text(
                    one, "LoopController.loops"
                )
                loops = number(one, "LoopController.loops", 1)
        forever = forever or loops < 0
        first, turns = self._branch(branch, self._scope(branch, scope))
        first, turns = _rests(first, turns)
        rounds = None if forever else int(loops) * devices
        if forever and not duration:
            fix = "Set a duration; --duration names one here"
            self._plan.notes.append(f"{title}: it has no end of its own; {fix}")
        if not forever and duration:
            self._plan.notes.append(f"{title}: it ends after {int(loops)} loops, at most {duration:g} s")
        ramp = number(element, "ThreadGroup.ramp_time", 0)
        # N threads begin one after the other within the ramp
        users = Users(
            element.line, title, first, turns, devices,
            ramp=ramp if devices > 1 else 0, duration=duration or None, rounds=rounds,
        )  # fmt: skip
        self._plan.users.append(users)

    def _branch(self, branch: Element, scope: Scope) -> tuple[list[Step], list[Step]]:
        """Samplers that are sent once, and those that are sent in turn; a rest is that before them."""
        first: list[Step] = []
        turns: list[Step] = []
        for element, below in _pairs(branch):
            match element.name:
                case "HTTPSamplerProxy" | "HTTPSampler" | "HTTPSampler2":
                    step = self._sampler(element, below, scope)
                    turns.extend([step] if step else [])
                case "GenericController" | "TransactionController" | "RecordingController":
                    inside = self._branch(below, self._scope(below, scope))
                    first += inside[0]
                    turns += inside[1]
                case "OnceOnlyController":
                    inside = self._branch(below, self._scope(below, scope))
                    first += [*inside[0], *inside[1]]
                case "LoopController":
                    inside = self._branch(below, self._scope(below, scope))
                    count = int(self._number(element, "LoopController.loops", 1))
                    if not 0 < count * len(inside[1]) <= LOOPS:
                        fix = f"Loops of up to {LOOPS} requests are written out"
                        self._faults.add(element.line, f"a loop of {count} times", fix)
                        count = 1
                    first += inside[0]
                    turns += inside[1] * count
                case _:
                    self._known(element)
        return first, turns

    def _known(self, element: Element) -> None:
        """A fault, unless it is used elsewhere or changes nothing."""
        name = element.name
        if name not in IGNORED | ACTING | VARIABLES and not name.endswith("Gui"):
            fix = "Disable or remove it if the load is right without it"
            self._faults.add(element.line, f"{name} has no counterpart", fix)

    def _sampler(self, element: Element, below: Element, scope: Scope) -> Step | None:
        scope = self._scope(below, scope)
        given = {
            key: self._text(element, f"HTTPSampler.{key}") for key in ("domain", "port", "protocol", "path")
        }
        at = {**scope.defaults, **{key: value for key, value in given.items() if value}}
        method = self._text(element, "HTTPSampler.method", "GET") or "GET"
        path = self._template(at.get("path", "/"), element.line)
        url = path
        if not path.startswith(("http://", "https://")):
            if not at.get("domain") or "${" in at["domain"] + at.get("port", ""):
                what = f"{element.get('testname') or 'a sampler'} has no server name"
                self._faults.add(
                    element.line,
                    what,
                    "Set it there, or in HTTP Request Defaults; -J NAME=VALUE gives a property",
                )
                return None
            port = f":{at['port']}" if at.get("port") else ""
            slash = "" if path.startswith("/") else "/"
            url = f"{at.get('protocol') or 'http'}://{at['domain']}{port}{slash}{path}"
        if not ORIGIN.match(url):
            self._faults.add(
                element.line, f"{url!r} is no URL of a server", "The protocols http and https are known"
            )
            return None
        body, url, kind = self._body(element, method, url)
        headers = dict(scope.headers)
        if kind and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = kind
        for name in ("Content-Length", "Connection", "Host"):
            headers.pop(name, None)
        if self._text(element, "HTTPSampler.use_keepalive", "true") == "false":
            fix = "Turn it on, or give each request a user"
            self._faults.add(element.line, "keep-alive is off for one sampler", fix)
        capture: dict[str, dict[str, str]] = {}
        for one, _ in _pairs(below):
            if one.name in ("RegexExtractor", "JSONPostProcessor"):
                capture |= self._capture(one)
            elif one.name not in ACTING | IGNORED:
                self._faults.add(one.line, f"{one.name} has no counterpart", "Disable or remove it")
        expect = scope.expect or ("2xx",)
        return Step(element.line, method, url, headers, body, expect, capture, scope.pause, scope.spread)

    def _body(self, element: Element, method: str, url: str) -> tuple[str | None, str, str]:
        """Body, URL with the parameters of a GET, and type of the content."""
        found = list(_within(element, "HTTPsampler.Arguments"))
        values = [(self._text(a, "Argument.name"), self._text(a, "Argument.value"), a) for a in found]
        for one in element.children:
            if one.attributes.get("name") == "HTTPsampler.Files" and list(_deep(one)):
                self._faults.add(element.line, "it sends files", "Give the content as body data")
        if self._text(element, "HTTPSampler.postBodyRaw") == "true":
            raw = "".join(value for _, value, _ in values)
            return self._template(raw, element.line), url, ""
        if not values:
            return None, url, ""
        pairs = []
        for name, value, one in values:
            encode = self._text(one, "HTTPArgument.always_encode") == "true"
            plain = "${" not in value
            filled = quote_plus(value) if encode and plain else value
            pairs.append(f"{quote_plus(name)}={self._template(filled, one.line)}")
        joined = "&".join(pairs)
        if method in ("POST", "PUT", "PATCH"):
            return joined, url, "application/x-www-form-urlencoded"
        return None, f"{url}{'&' if '?' in url else '?'}{joined}", ""

    def _capture(self, element: Element) -> dict[str, dict[str, str]]:
        if element.name == "RegexExtractor":
            name, regex = (
                self._text(element, "RegexExtractor.refname"),
                self._text(element, "RegexExtractor.regex"),
            )
            ordinary = self._text(element, "RegexExtractor.template", "$1$") in ("$1$", "")
            first = self._text(element, "RegexExtractor.match_number", "1") in ("1", "")
            headers = self._text(element, "RegexExtractor.useHeaders", "false") in ("false", "")
            if not (ordinary and first and headers):
                self._faults.add(
                    element.line,
                    "a regular expression extractor of another kind",
                    "$1$ of match 1 of the body is known",
                )
            return {name: {"regex": regex}}
        name = self._text(element, "JSONPostProcessor.referenceNames")
        path = self._text(element, "JSONPostProcessor.jsonPathExprs")
        pointer = json_pointer(path)
        if pointer is None or ";" in name:
            fix = "One path like $.data.token or $.items[0].id is known"
            self._faults.add(element.line, f"the JSON path {path}", fix)
        return {name: {"json": pointer or ""}}


ACTING = {
    "ConfigTestElement", "HeaderManager", "ConstantTimer", "UniformRandomTimer", "ResponseAssertion",
    "RegexExtractor", "JSONPostProcessor",
}  # fmt: skip
"""Elements that act on samplers of their branch."""
VARIABLES = {"Arguments", "CSVDataSet"}


def json_pointer(path: str) -> str | None:
    """A plain JSON path as RFC 6901 has it; `None`: it may lead to several values."""
    if not re.fullmatch(r"\$((\.[A-Za-z_][\w-]*)|(\[\d+\])|(\['[^'\]]+'\]))+", path):
        return None
    parts = re.findall(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\['([^'\]]+)'\]", path)
    return "".join("/" + "".join(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _rests(first: list[Step], turns: list[Step]) -> tuple[list[Step], list[Step]]:
    """JMeter rests before a sampler, we after a response; behind the last for the first in turn."""
    following = [*first, *turns][1:] + (turns or first)[:1]
    rested = [
        replace(step, pause=after.pause, spread=after.spread)
        for step, after in zip([*first, *turns], following, strict=True)
    ]
    return rested[: len(first)], rested[len(first) :]


def _pairs(branch: Element) -> list[tuple[Element, Element]]:
    """The enabled elements of a branch, each with the branch below it."""
    found, children = [], branch.children
    for at, child in enumerate(children):
        if child.name == "hashTree" or child.attributes.get("enabled") == "false":
            continue
        below = children[at + 1] if at + 1 < len(children) else None
        found.append(
            (
                child,
                below
                if below is not None and below.name == "hashTree"
                else Element("hashTree", {}, child.line),
            )
        )
    return found


def _all(branch: Element) -> list[tuple[Element, Element]]:
    """The enabled elements of a branch and of all below."""
    return [pair for one in _pairs(branch) for pair in (one, *_all(one[1]))]


def _deep(element: Element) -> list[Element]:
    return [
        each
        for child in element.children
        for each in (child, *_deep(child))
        if child.name == "elementProp" or child.children
    ]


def _within(element: Element, name: str | None) -> list[Element]:
    """The entries of a list in an element: that of this name, or any."""
    for child in element.children:
        if child.name == "collectionProp" and (
            name is None or child.attributes.get("name") == name or not child.attributes.get("name")
        ):
            return child.children
        if child.attributes.get("name") == name or name is None:
            found = _within(child, None)
            if found:
                return found
    return []
