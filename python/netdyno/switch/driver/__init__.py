"""Drivers of virtual switches: one a file, one contract (`base.py`), one line in `systems.py` each."""

from collections.abc import Mapping

from netdyno.lazy import Lazy
from netdyno.switch.driver.base import Switch
from netdyno.systems import SWITCH

DRIVERS: Mapping[str, type[Switch]] = Lazy({}, SWITCH.duts)
"""Switches by name, in the order in which they are listed; the platform has them as devices under test."""

DETECTED: Mapping[str, str] = {"vpp": "vpp"}
"""Switches without a driver, and the program that tells that one is installed."""

__all__ = ["DETECTED", "DRIVERS", "Switch"]
