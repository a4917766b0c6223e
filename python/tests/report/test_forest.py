"""The drawing of changes: where things stand in it, and that any change can be drawn."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from netdyno.stats.comparison import Finding, Verdict
from netdyno.stats.observation import Metric
from netdyno.stats.paired import effect
from netdyno.tuning.pages.forest import LEFT, MIDDLE, Change, change, forest

SVG = "{http://www.w3.org/2000/svg}"
ZERO = LEFT + MIDDLE / 2


def drawn(*changes: Change) -> ET.Element:
    return ET.fromstring(forest("A <b>", "c & d", changes))


def test_better_is_to_its_side_and_no_change_in_the_middle() -> None:
    made = drawn(
        Change("more", 0.5, 0.4, 0.6, Verdict.BETTER), Change("same", 0.0, -0.1, 0.1, Verdict.NO_EFFECT),
        Change("half", -0.5, -0.6, -0.4, Verdict.WORSE),
    )  # fmt: skip
    circles = [(float(one.get("cx", "")), one.get("fill")) for one in made.iter(f"{SVG}circle")]
    (more, green), (same, grey), (half, red) = circles
    assert half < same == ZERO < more < LEFT + MIDDLE
    assert len({green, grey, red}) == 3
    texts = [one.text for one in made.iter(f"{SVG}text")]
    assert {"A <b>", "c & d", "more", "better", "same", "no effect", "half", "worse", "0"} <= set(texts)


def test_twice_is_as_far_as_half() -> None:
    made = drawn(Change("a", 1.0, 1.0, 1.0, Verdict.BETTER), Change("b", -0.5, -0.5, -0.5, Verdict.WORSE))
    twice, half = (float(one.get("cx", "")) for one in made.iter(f"{SVG}circle"))
    assert math.isclose(twice - ZERO, ZERO - half, abs_tol=0.2)


def test_differences_become_shares_and_what_has_none_is_left_out() -> None:
    def found(a: list[float], b: list[float], absolute: bool) -> Finding:
        metric = Metric("failed", "", "lower", zero_is_best=absolute)
        return Finding(metric, effect(a, b, absolute=absolute), 1.0, 0.1, Verdict.WORSE)

    made = change("x", found([10] * 6, [15] * 6, True))
    assert made == Change("x", 0.5, 0.5, 0.5, Verdict.WORSE)
    assert change("x", found([0] * 6, [5] * 6, True)) is None
    assert change("x", found([1], [5], False)) is None
    ratio = change("x", found([1] * 6, [2] * 6, False))
    assert ratio is not None
    assert math.isclose(ratio.high, 1.0)


@given(
    st.lists(st.tuples(*[st.floats(-5, 1e9)] * 3, st.sampled_from(Verdict)), max_size=4), st.text(max_size=9)
)
def test_any_changes_are_drawn_within_the_page(
    rows: list[tuple[float, float, float, Verdict]], label: str
) -> None:
    label = "".join(c for c in label if c.isprintable())
    made = drawn(*(Change(label, middle, low, high, verdict) for middle, low, high, verdict in rows))
    for one in made.iter(f"{SVG}circle"):
        assert LEFT <= float(one.get("cx", "")) <= LEFT + MIDDLE
