"""A function in a virtual machine: `vm`, a bridge of its own kernel between two virtio-net interfaces.

Each port of the function's namespace is joined by a bridge to a tap of the virtual machine, so that what
enters and leaves the virtual machine is seen at the port. Frames reach it with the checksums of a wire.
"""

from __future__ import annotations

import time
from typing import ClassVar

from pydantic import Field

from netdyno import files
from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.switch.chain.vnf.base import IN, OUT, Vnf
from netdyno.system.process import last_lines
from netdyno.system.vm import commands, initramfs, setup

MODULES = ("virtio_pci", "virtio_net", "bridge")
UP = "netdyno: forwards"
"""On its console once it does."""
BOOT = 300.0
"""Seconds in which it must forward; without KVM an idle machine takes five."""
_INIT = f"""\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for m in $($b cat /modules/order); do $b insmod /modules/$m || echo "netdyno: no $m"; done
$b brctl addbr br0 || exit
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
        built = initramfs.build(made.kernel, made.busybox, {"init": _INIT}, made.kernel.files(*MODULES))
        with files.open_private(archive, "xb") as file:
            file.write(built)
        way = made.accelerators[0]
        command = [
            str(made.qemu), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", "q35", "-accel", commands.ACCEL[way], "-cpu", commands.CPU[way], "-smp", "1",
            "-m", f"{self.options.memory}M", "-kernel", str(made.kernel.image), "-initrd", str(archive),
            "-append", f"{commands.KERNEL} ipv6.disable_ipv6=1", "-serial", f"file:{self._console}",
        ]  # fmt: skip
        for number, port in enumerate((IN, OUT)):
            tap, bridge = f"vm-{port}", f"br-{port}"
            self.run("ip", "tuntap", "add", tap, "mode", "tap")
            self.run("ip", "link", "add", bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0",
                     "ageing_time", "0")  # fmt: skip
            for one in (port, tap):
                self.run("ip", "link", "set", one, "master", bridge, "up")
            self.run("ip", "link", "set", bridge, "up")
            command += [
                "-netdev", f"tap,id=n{number},ifname={tap},script=no,downscript=no,vnet_hdr=off",
                "-device", f"virtio-net-pci,netdev=n{number},romfile=",
            ]  # fmt: skip
        self.start(command)

    def await_ready(self) -> None:
        """Wait until its kernel says so. Raises Error with its last words."""
        until = time.monotonic() + BOOT
        while not any(UP in line for line in last_lines(self._console)):
            if not self.alive() or time.monotonic() > until:
                assert self.process is not None
                how = self.process.ending() or f"it does not forward within {BOOT:g} s"
                console = last_lines(self._console)
                # after its init ended a kernel says much, and nothing of the reason
                own = [line for line in console if not line.startswith("[")] or console
                said = [*last_lines(self.process.log)[-2:], *own[-3:]]
                what = f"the virtual machine of {self.site.name} does not start ({how}): {' | '.join(said)}"
                raise Error("ND-92-61", what[:600], at=f"vnfs.{self.site.name}")
            time.sleep(0.05)
