"""A small virtual machine: BusyBox, a few modules and one script in memory, with virtio-net interfaces.

It has no disk. A tap is joined by a bridge to an interface of a namespace, so that frames are seen there as
they enter and leave the virtual machine; they have the checksums of a wire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from netdyno import files
from netdyno.system.process import Process, last_lines
from netdyno.system.vm import commands, initramfs
from netdyno.system.vm.setup import Setup

BOOT = 300.0
"""Seconds in which it must be up; without KVM an idle machine takes five."""
HEAD = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for m in $($b cat /modules/order); do $b insmod /modules/$m || echo "netdyno: no $m"; done
"""
"""Begin of its script: file systems and modules."""
FRAMES = ",".join(
    f"{name}=off"
    for name in (
        "csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo", "host_tso4",
        "host_tso6", "host_ecn", "host_ufo", "mrg_rxbuf",
    )
)  # fmt: skip
"""Properties of an interface that has frames of the MTU with checksums, and no segments."""


def archive(
    made: Setup, path: Path, script: str, modules: Iterable[str], programs: Iterable[Path] = ()
) -> None:
    """Write its file system."""
    wanted = made.kernel.files(*modules)
    built = initramfs.build(made.kernel, made.busybox, {"init": script}, wanted, programs)
    with files.open_private(path, "xb") as file:
        file.write(built)


def command(made: Setup, initrd: Path, console: Path, memory: int, devices: Iterable[str]) -> list[str]:
    """QEMU with so many MiB and these devices. Others can share its memory."""
    way = made.accelerators[0]
    return [
        str(made.qemu), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", "q35,memory-backend=memory", "-accel", commands.ACCEL[way], "-cpu", commands.CPU[way],
        "-smp", "1", "-m", f"{memory}M",
        "-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on",
        "-kernel", str(made.kernel.image), "-initrd", str(initrd),
        "-append", f"{commands.KERNEL} ipv6.disable_ipv6=1", "-serial", f"file:{console}", *devices,
    ]  # fmt: skip


def tap(number: int, name: str, mac: str = "") -> list[str]:
    """Devices of an interface over a tap of QEMU's namespace."""
    backend = f"tap,id=n{number},ifname={name},script=no,downscript=no,vnet_hdr=off"
    return ["-netdev", backend, "-device", _interface(number, mac)]


def vhost_user(number: int, socket: Path, mac: str = "") -> list[str]:
    """Devices of an interface over vhost-user: QEMU listens there, and boots when a switch connects."""
    return [
        "-chardev", f"socket,id=v{number},path={socket},server=on,wait=off",
        "-netdev", f"vhost-user,id=n{number},chardev=v{number}",
        # without MSI-X: without KVM, QEMU 7.2 ends with SIGSEGV when it unmasks a vector of such an interface
        "-device", f"{_interface(number, mac)},{FRAMES},vectors=0",
    ]  # fmt: skip


def _interface(number: int, mac: str) -> str:
    return f"virtio-net-pci,netdev=n{number},romfile=" + (f",mac={mac}" if mac else "")


def join(run: Callable[..., object], interface: str, name: str) -> str:
    """Make a tap, joined by a bridge to an interface of the namespace in which `run` runs a program."""
    made, bridge = f"vm-{name}", f"br-{name}"
    run("ip", "tuntap", "add", made, "mode", "tap")
    run("ip", "link", "add", bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0",
        "ageing_time", "0")  # fmt: skip
    for one in (interface, made):
        run("ip", "link", "set", one, "master", bridge, "up")
    run("ip", "link", "set", bridge, "up")
    return made


def await_said(process: Process, console: Path, words: str, doing: str) -> str:
    """Wait until its console has these words: nothing; else why it has not, with its last words."""
    until = time.monotonic() + BOOT
    while not any(words in line for line in last_lines(console)):
        if process.exited() is not None or time.monotonic() > until:
            how = process.ending() or f"it does not {doing} within {BOOT:g} s"
            return f"({how}): {last_words(process, console)}"
        time.sleep(0.05)
    return ""


def last_words(process: Process, console: Path) -> str:
    """The end of QEMU's log and of its console."""
    lines = last_lines(console)
    # after its init ended a kernel says much, and nothing of the reason
    own: Sequence[str] = [line for line in lines if not line.startswith("[")] or lines
    return " | ".join([*last_lines(process.log)[-2:], *own[-3:]]) or "it said nothing"
