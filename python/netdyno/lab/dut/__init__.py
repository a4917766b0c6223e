"""Devices under test: one driver a file, one contract (`base.py`), one registry line here."""

from netdyno.lab.dut.base import Dut, Place
from netdyno.lab.dut.graph import GraphDut
from netdyno.lab.dut.kernel_nat import KernelNat
from netdyno.lab.dut.mosquitto import Mosquitto
from netdyno.lab.dut.nginx import Nginx
from netdyno.lab.dut.reflector import Reflector
from netdyno.lab.dut.reflector_dpdk import ReflectorDpdk

DRIVERS: dict[str, type[Dut]] = {
    "graph": GraphDut,
    "kernel-nat": KernelNat,
    "mosquitto": Mosquitto,
    "nginx": Nginx,
    "reflector": Reflector,
    "reflector-dpdk": ReflectorDpdk,
}

__all__ = ["DRIVERS", "Dut", "Place"]
