"""Handing over: what refuses it, and what keeps the answer away, are told apart."""

from __future__ import annotations

from typing import Any, cast

import pytest

from netdyno.errors import Error
from netdyno.nat import pair
from netdyno.nat.running import Running


class Asked:
    """A NAT of a pair that answers a hand-over with an error."""

    name = "cgn"

    def __init__(self, answer: Error) -> None:
        self.answer = answer

    def call(self, method: str, **_: Any) -> Any:
        if method == "nat.hand_over":
            raise self.answer
        return {"pair": {"role": "active", "peer": 7}}


@pytest.mark.parametrize(
    ("code", "told"), [("ND-104-11", pair.NONE), ("ND-91-22", "ND-91-22"), ("ND-92-36", "ND-92-36")]
)
def test_only_a_refusal_is_told_as_one(code: str, told: str) -> None:
    with pytest.raises(Error, match="the reason") as found:
        pair.hand_over(cast(Running, Asked(Error(code, "the reason"))))
    assert found.value.code == told
