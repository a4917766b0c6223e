"""Devices under test: one driver a file, one contract (`base.py`), one registry line here; those of
systems stand in `netdyno/systems.py`."""

from collections.abc import Mapping

from netdyno.lab.dut.base import Dut, DutSite
from netdyno.lab.dut.graph import GraphDut
from netdyno.lab.dut.mosquitto import Mosquitto
from netdyno.lab.dut.nginx import Nginx
from netdyno.lab.dut.reflector import Reflector
from netdyno.lab.dut.reflector_dpdk import ReflectorDpdk
from netdyno.lab.dut.service import CoapService, HttpService, MqttService, ScriptService, StreamService
from netdyno.lazy import Lazy
from netdyno.systems import named

DRIVERS: Mapping[str, type[Dut]] = Lazy(
    {
        "coap-server": CoapService,
        "graph": GraphDut,
        "http-server": HttpService,
        "mosquitto": Mosquitto,
        "mqtt-broker": MqttService,
        "nginx": Nginx,
        "reflector": Reflector,
        "reflector-dpdk": ReflectorDpdk,
        "script-server": ScriptService,
        "stream-receiver": StreamService,
    },
    named("duts"),
    by_name=True,
)

__all__ = ["DRIVERS", "Dut", "DutSite"]
