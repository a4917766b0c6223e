"""A load that fails whatever the setting: more trials of it tell nothing, so the first ones end the study.

A trial that fails is a result of its setting where the load works without one. So before a failure is taken
for that, the load is tried without a setting, if it has not worked yet or fails alike again and again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from netdyno.errors import Error

MANY = 3
"""Trials that fail alike in a row, after which a load that worked before is tried without a setting."""


class PermanentFailures:
    """The failures of a bench, as they come."""

    def __init__(self) -> None:
        self._worked = False
        self._last, self._alike = "", 0

    def after(
        self, failure: Error | None, plain: Callable[[], Error | None], advice: Callable[[Error], str]
    ) -> None:
        """Told how the load of a trial failed, if it did. `plain` runs it without a setting.

        Raises if that fails in the same way.
        """
        if failure is None:
            self._worked, self._last, self._alike = True, "", 0
            return
        self._alike = self._alike + 1 if alike(failure.what) == self._last else 1
        self._last = alike(failure.what)
        if self._worked and self._alike != MANY:
            return
        other = plain()
        if other is None:
            self._worked = True
        elif alike(other.what) == self._last:
            times = "twice" if self._alike == 1 else f"{self._alike + 1} times in a row"
            what = f"the load failed {times} in the same way, without a setting too: {failure.what}"
            fix = advice(failure) or failure.fix or "Run the load by itself, and see what it says"
            raise Error(failure.code, what, at=failure.at, fix=fix)


def alike(what: str) -> str:
    """What failures for one reason share: not figures, nor what was printed in place of a metric."""
    return re.sub(r"[\d.,]+", "0", re.sub(r"(in what the load printed): .*", r"\1", what, flags=re.DOTALL))
