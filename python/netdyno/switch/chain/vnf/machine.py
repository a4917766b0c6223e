"""A function in a virtual machine: `vm`, a bridge of its own kernel between two virtio-net interfaces."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.switch.chain.vnf.base import IN, OUT, Vnf
from netdyno.system.vm import setup, small

MODULES = ("virtio_pci", "virtio_net", "bridge")
UP = "netdyno: forwards"
"""On its console once it does."""
_INIT = f"""\
{small.HEAD}$b brctl addbr br0 || exit
echo 1 >/proc/sys/net/ipv6/conf/br0/disable_ipv6
$b brctl stp br0 off
$b brctl setfd br0 0
$b brctl setageing br0 0
for i in eth0 eth1; do
    echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6
    $b ip link set $i up || exit
    $b brctl addif br0 $i || exit
done
$b ip link set br0 up
echo "{UP}"
while :; do $b sleep 3600; done
"""


class Options(Settings):
    """The virtual machine."""

    memory: int = Field(default=96, ge=64, le=4096)
    """MiB."""


class Machine(Vnf):
    """A virtual machine that hands frames on between its interfaces."""

    kind: ClassVar[str] = "vm"
    about: ClassVar[str] = "a virtual machine (QEMU) with a bridge between two virtio-net interfaces"
    Options = Options
    program: ClassVar[tuple[str, str] | None] = ("ip", "iproute2")

    def setup(self) -> None:
        """Join its taps to the ports, and let it boot."""
        made = setup.find()
        if isinstance(made, setup.MissingRequirement):
            what = f"the function {self.site.name} cannot be a virtual machine: {made.why}"
            raise Error("ND-92-61", what, at=f"vnfs.{self.site.name}", fix=made.fix)
        self._console = self.site.folder / f"vnf-{self.site.name}.console"
        archive = self.site.folder / f"vnf-{self.site.name}.initramfs"
        small.archive(made, archive, _INIT, MODULES)
        devices = []
        for number, port in enumerate((IN, OUT)):
            devices += small.tap(number, small.join(self.run, port, port))
        self.start(small.command(made, archive, self._console, self.options.memory, devices))

    def await_ready(self) -> None:
        """Wait until its kernel says so. Raises Error with its last words."""
        assert self.process is not None, "it is set up"
        if why := small.await_said(self.process, self._console, UP, "forward"):
            what = f"the virtual machine of {self.site.name} does not start {why}"
            raise Error("ND-92-61", what[:600], at=f"vnfs.{self.site.name}")
