"""Devices under test: one driver a file, one contract (`base.py`), one registry line here."""

from netdyno.dut.base import Dut, Place
from netdyno.dut.mosquitto import Mosquitto
from netdyno.dut.nginx import Nginx
from netdyno.dut.reflector import Reflector
from netdyno.dut.reflector_dpdk import ReflectorDpdk

DRIVERS: dict[str, type[Dut]] = {
    "mosquitto": Mosquitto,
    "nginx": Nginx,
    "reflector": Reflector,
    "reflector-dpdk": ReflectorDpdk,
}

__all__ = ["DRIVERS", "Dut", "Place"]
