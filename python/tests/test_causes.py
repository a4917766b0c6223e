"""Failures by cause: what is said of each, what to do about it, and that no two kinds share wrong advice."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import from_regex

from netdyno.cli.live_frame import render_frame
from netdyno.cli.live_state import State, take
from netdyno.cli.plain import PlainLines
from netdyno.cli.summary import failures, redirects
from netdyno.core import causes, totals
from netdyno.core.result import CheckResult, GroupSummary, Leg, Repetition, Result, Summary, ThresholdResult
from netdyno.core.wire import CauseCount, Counts, FailureCount, GroupPoint, GroupResult, SeriesPoint
from netdyno.export.junit import junit
from netdyno.report.render import render
from netdyno.stats.checks import checks
from netdyno.stats.summary import summarise

NOT_FOUND = "status 404 Not Found: no such file"


def rejected(of_404: int = 118, of_503: int = 2, none: int = 0) -> FailureCount:
    found = [
        CauseCount(cause="404", count=of_404, total=of_404 + 5, example=NOT_FOUND),
        CauseCount(cause="503", count=of_503, total=of_503, example="status 503"),
    ]
    count = of_404 + of_503 + none
    return FailureCount(kind="rejected", count=count, total=count + 5, example=NOT_FOUND, causes=found)


def group(*errors: FailureCount) -> GroupResult:
    counts = Counts(messages_sent=200, failures={one.kind: one.count for one in errors})
    return GroupResult(
        name="web", protocol="http", target="http://h/x", measured=counts, total=counts, confirmed=True,
        errors=list(errors),
    )  # fmt: skip


def result(*errors: FailureCount) -> Result:
    repetition = Repetition(run="r", groups=[group(*errors)])
    leg = Leg(name="sockets", repetitions=[repetition], summary=summarise([repetition]))
    (found,) = checks("sockets", {"groups": [{"name": "web", "model": {"http": {}}}]}, [repetition])
    broken = ThresholdResult(leg="sockets", metric="web.errors", bound=0, kind="max", value=120, passed=False)
    return Result(
        id="r", name="n", started="2026-01-01T00:00:00Z", valid=True, verdict="fail", legs=[leg],
        checks=[found], thresholds=[broken],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "answered", "known"),
    [
        ("sip://h", False, "nothing shows that they arrived"),
        ("udp://h:1", False, "nothing shows that they arrived"),
        ("ping://h", False, "firewalls that drop ICMP"),
        ("sip+tcp://h", False, "server behind the port"),
        ("sip://h", True, "were lost, or the server dropped them"),
        ("http://h", True, "see the server's log, or load it less"),
        ("", False, "no answer came"),
    ],
)
def test_of_silence_only_what_is_known_is_said(target: str, answered: bool, known: str) -> None:
    errors = [FailureCount(kind="unanswered", count=5)]
    (said,) = causes.lines("phones", target, errors, "10:00:00 UTC" if answered else "")
    assert known in said
    assert "took them" not in said


def test_silence_of_a_port_and_a_port_that_nobody_listens_on_are_told_apart() -> None:
    errors = [FailureCount(kind=kind, count=5) for kind in ("unanswered", "refused")]
    silent, refused = causes.lines("phones", "sip://h", errors)
    assert "nothing listens" in refused and "nothing listens" not in silent


@pytest.mark.parametrize(
    ("kind", "cause", "words"),
    [
        ("rejected", "401", "credentials"),
        ("protocol", "content in a response to HEAD", "ends with its head"),
        ("local", "called before its registration", "warm-up"),
        ("tls", "certificate of a CA", "this very certificate"),
        ("rejected", "403", "credentials"),
        ("rejected", "404", "path"),
        ("rejected", "429", "rate limit"),
        ("rejected", "500", "the server failed: see its log"),
        ("rejected", "502", "behind it"),
        ("rejected", "4.01", "credentials"),
        ("rejected", "4.04", "path"),
        ("rejected", "5.03", "the server failed"),
        ("rejected", "CONNACK 0x05 not authorized", "password"),
        ("rejected", "CONNACK 0x87 not authorized", "password"),
        ("rejected", "CONNACK 0x03 server unavailable", "see its log"),
        ("rejected", "SUBACK 0x87 not authorized", "topic"),
        ("rejected", "PUBACK 0x97 quota exceeded", "limit"),
        ("rejected", "TLS on this port", "https://"),
        ("tls", "plain HTTP on this port", "http://"),
        ("tls", "certificate expired", "renew"),
        ("tls", "certificate for another name", "server_name"),
        ("tls", "certificate of an unknown issuer", "CA"),
        ("tls", "alert handshake_failure", "cipher"),
        ("tls", "alert protocol_version", "version"),
        ("closed", "closed during the TLS handshake", "TLS"),
        ("tls", "client certificate required", "--cert"),
        ("tls", "alert certificate_required", "--cert"),
        ("tls", "renegotiation", "first handshake"),
        ("tls", "alert handshake_failure after ServerHello", "see its log"),
        ("tls", "", "see the server's log"),
        ("closed", "ended without TLS close_notify", "close_notify"),
        ("reset", "in the body", "cut"),
        ("rejected", "no value to capture", "check the capture"),
        ("rejected", "600", "the server failed"),
        ("rejected", "CONNACK 0x9d server moved", "use another server"),
        ("closed", "DISCONNECT 0x9c use another server", "use another server"),
        ("rejected", "CONNACK 0x8c bad authentication method", "authenticate"),
        ("closed", "DISCONNECT 0x98 administrative action", "operator"),
        ("rejected", "SUBACK 0x9e shared subscriptions not supported", "subscription"),
        ("rejected", "", "see its log"),
        ("refused", "", "nothing listens"),
        ("unheard-of", "x", "see the report"),
    ],
)
def test_advice_fits_the_cause(kind: str, cause: str, words: str) -> None:
    assert words in causes.advice(kind, cause)
    if cause.startswith("5"):
        assert "credentials" not in causes.advice(kind, cause)


def test_datagrams_without_an_answer_beside_refused_ones_met_nobody_either() -> None:
    udp = partial(causes.advice, "unanswered", "no answer", "udp://10.0.0.2:9")
    assert udp(refused=True) == causes.REFUSED
    assert "address (ping)" in udp()
    assert udp(refused=True, answered=True) == udp(answered=True)
    errors = [FailureCount(kind="refused", count=7), FailureCount(kind="unanswered", count=993)]
    assert causes.REFUSED in "\n".join(causes.lines("g", "udp://10.0.0.2:9", errors))


def test_every_advice_can_be_reached() -> None:
    """A pattern behind one that takes all it would take is dead."""

    def is_reached(kind: str, pattern: str, what: str) -> bool:
        try:
            find(
                from_regex(re.compile(pattern, re.ASCII), fullmatch=True),
                lambda cause: causes.advice(kind or "closed", cause) == what,
                settings=settings(phases=[Phase.generate], database=None),
            )
        except NoSuchExample:
            return False
        return True

    dead = [pattern for kind, pattern, what in causes.ADVICE if not is_reached(kind, pattern, what)]
    assert not dead


def test_a_redirect_is_said_not_to_be_followed() -> None:
    def said(**own: int) -> str:
        counts = Counts(messages_sent=10, **own)  # type: ignore[arg-type]
        one = group().model_copy(update={"measured": counts, "total": counts})
        return redirects(summarise([Repetition(run="r", groups=[one])]).groups[0])

    assert said(responses_2xx=10, responses_3xx=0) == ""
    assert said(responses_2xx=1, responses_3xx=3).startswith(
        "web: responses_3xx 75%: redirects are measured and not"
    )


def test_statuses_are_told_apart_with_the_first_example() -> None:
    summary = summarise([Repetition(run="r", groups=[group(rejected())])])
    said = failures(Leg(name="a", summary=summary))
    assert said[0] == "web: 120 × rejected at http://h/x: 404 × 118, 503 × 2"
    assert said[1].startswith("  404: ") and "path" in said[1] and "credentials" not in said[1]
    assert said[2].startswith("  503: ") and "overloaded" in said[2]
    assert said[3] == f"  first: {NOT_FOUND}"
    one = rejected(3, 0)
    assert causes.lines("g", "t", [one])[0] == f"g: 3 × rejected at t: 404 × 3; {causes.PATH}"


def test_what_has_no_cause_is_counted_with_the_rest() -> None:
    assert causes.of_error(rejected(none=7)) == "404 × 118, other × 7, 503 × 2".replace(
        "other × 7, 503 × 2", "503 × 2, other × 7"
    )
    assert (
        causes.brief([rejected(3, 0), FailureCount(kind="refused", count=2)])
        == "rejected (404 × 3), refused × 2"
    )
    many = {f"{400 + i}": 1 for i in range(16)}
    assert causes.frequencies(many, 30).endswith(f"other × {30 - causes.SHOWN}")


def test_a_servers_words_are_bounded_and_harmless() -> None:
    evil = FailureCount(kind="rejected", count=1, example="status 500 \x1b[2J" + "x" * 500)
    shown = causes.first(evil)
    assert "\x1b" not in shown and "\\x1b[2J" in shown and len(shown) <= causes.WORDS


def test_repetitions_add_up_by_cause() -> None:
    merged = totals.failures([rejected(1, 5), rejected(2, 0), FailureCount(kind="refused", count=1)])
    assert [(one.kind, one.count) for one in merged] == [("rejected", 8), ("refused", 1)]
    assert [(one.cause, one.count, one.total) for one in merged[0].causes] == [("503", 5, 5), ("404", 3, 13)]
    # what a result of a former version has
    assert causes.measured([], Counts(failures={"tls": 2, "reset": 0}))[0].kind == "tls"


def test_causes_are_in_checks_junit_and_report() -> None:
    made = result(rejected())
    assert made.checks[0].what.endswith("120 failures: rejected (404 × 118, 503 × 2)")
    suite = junit(made)
    assert suite.count("web: 120 × rejected at http://h/x: 404 × 118, 503 × 2") == 3
    assert "status 404 Not Found: no such file" in suite
    page = render(made)
    assert "status 404 Not Found: no such file" in page and causes.PATH in page


def test_the_live_view_and_plain_lines_tell_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counts(messages_sent=120, failures={"rejected": 120})
    point = GroupPoint(counts=counts, causes={"rejected": {"404": 118, "503": 2}})
    sample = SeriesPoint(t=1.0, dt=1.0, phase="measure", groups={"web": point})
    state = State()
    take(state, sample)
    take(state, sample)
    lines = [str(line) for line in render_frame(state, 120, 40).renderables]
    assert any("web: rejected 240 (404 × 236, 503 × 4)" in line for line in lines)
    PlainLines().sample(sample.model_dump())
    assert "120 failed (rejected: 404 × 118, 503 × 2)" in capsys.readouterr().err


def test_a_result_of_a_former_version_is_read() -> None:
    old = GroupSummary(name="g", target="t", measured=Counts(failures={"rejected": 3}))
    assert failures(Leg(name="a", summary=Summary(groups=[old]))) == [
        f"g: 3 × rejected at t; {causes.KINDS['rejected']}"
    ]
    assert Summary(groups=[old]).groups[0].errors == []
    assert CheckResult(group="g", check="delivery", value=0, limit=1, passed=False).what == ""


def test_what_a_port_counted_is_a_cause() -> None:
    said = causes.ports(
        [
            {
                "a": {"rx_packets": 5, "dropped_bad_checksum": 2, "dropped_malformed": 1},
                "b": {"rx_packets": 9},
            },
            {
                "a": {"dropped_bad_checksum": 3},
                "b": {"dropped_duplicate_address": 1, "dropped_bad_checksum": 0},
            },
        ]
    )
    assert [line.split(":")[0] for line in said] == ["port a", "port b"]
    assert "5 packets with wrong checksums" in said[0] and "1 messages of another host" in said[1]
    leg = Leg(
        name="one",
        repetitions=[Repetition(run="r", interfaces={"a": {"dropped_bad_checksum": 7}})],
        summary=Summary(),
    )
    assert failures(leg) == causes.ports([{"a": {"dropped_bad_checksum": 7}}])
