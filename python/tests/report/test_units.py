from __future__ import annotations

import pytest

from netdyno.report import units


def plain(text: str) -> str:
    return text.replace(units.THIN, " ")


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (850, "850 ns"), (1_234, "1.23 µs"), (999.6, "1,000 ns"), (12_345_678, "12.3 ms"),
     (1.2e9, "1.20 s"), (75e9, "75.0 s"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_duration(ns: float | None, text: str) -> None:
    assert plain(units.duration(ns)) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0 %"),
        (0.000123, "0.0123 %"),
        (0.5, "50.0 %"),
        (0.9998, "99.98 %"),
        (0.999999, "99.9999 %"),
        (1, "100 %"),
        # sums of shares, which a double has as 0.99999999999999986 or 1.0000000000000002
        (1 - 2**-52, "100 %"),
        (1 + 2**-52, "100 %"),
        (1 - 1e-10, "99.99999999 %"),
    ],
)
def test_percent_never_rounds_up_to_all(ratio: float, text: str) -> None:
    assert plain(units.percent(ratio)) == text


def test_rates_and_counts() -> None:
    assert plain(units.rate(4241.37)) == "4,241 /s"
    assert plain(units.rate(1_477_245)) == "1.477 M/s"
    assert plain(units.rate(2.5)) == "2.50 /s"
    assert plain(units.scaled(12_345_678, "bit/s")) == "12.3 Mbit/s"
    assert plain(units.count(59_089_828)) == "59,089,828"


def test_a_chosen_limit_has_no_false_zeros() -> None:
    assert [plain(units.exact(t)) for t in ("5.00 ms", "0.100 %", "95.0 %", "100 ms", "1,000 /s", "2.50 s")] == [
        "5 ms", "0.1 %", "95 %", "100 ms", "1,000 /s", "2.5 s",
    ]  # fmt: skip


def test_span_says_a_shared_unit_once() -> None:
    assert plain(units.span(units.duration(1.65e6), units.duration(1.79e6))) == "1.65 … 1.79 ms"
    assert plain(units.span(units.duration(900e3), units.duration(1.1e6))) == "900 µs … 1.10 ms"
    assert plain(units.span(units.count(12_345), units.count(23_345))) == "12,345 … 23,345"


@pytest.mark.parametrize(
    ("s", "text"),
    [(0.0054, "5.4 ms"), (0.5, "500 ms"), (12, "12 s"), (90, "1 min 30 s"), (7500, "2 h 5 min")],
)
def test_seconds(s: float, text: str) -> None:
    assert plain(units.seconds(s)) == text


@pytest.mark.parametrize(
    ("metric", "unit"),
    [("a.delay.publish.p99", "ns"), ("a.lateness.p99", "ns"), ("a.loss", "ratio"), ("a.errors", "count"),
     ("a.errors.timeout", "count"), ("a.messages_sent", "count"), ("a.messages_sent.rate", "/s"), ("a.bytes_sent.rate", "B/s")],
)  # fmt: skip
def test_unit_of_a_metric(metric: str, unit: str) -> None:
    assert units.unit_of(metric) == unit
