"""Drivers of virtual switches: one a file, one contract (`base.py`), one line in `systems.py` each."""

from collections.abc import Mapping

from netdyno.lazy import Lazy
from netdyno.switch.driver.base import Switch
from netdyno.systems import SWITCH

DRIVERS: Mapping[str, type[Switch]] = Lazy({}, SWITCH.duts)
"""Switches by name, in the order in which they are listed; the platform has them as devices under test."""

__all__ = ["DRIVERS", "Switch"]
