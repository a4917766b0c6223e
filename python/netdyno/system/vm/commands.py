"""Command lines of the programs that a virtual machine is made of; pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from netdyno.system.vm.inside import MARK
from netdyno.system.vm.scripts import CONTROL, ERR, OUT
from netdyno.system.vm.setup import Setup

PORTS = (OUT, ERR, CONTROL)
CPU = {"kvm": "host", "tcg": "max,la57=off"}
ACCEL = {"kvm": "kvm", "tcg": "tcg,thread=single"}
"""One thread: before 8.1 QEMU's race where one translates what another changes, and it may crash."""

_PRIVATE = """\
folder=$1 share=$2
shift 2
exec 8<"$folder" 9<"$share"
mount -t tmpfs tmpfs /run
mkdir -p "$folder"
mount -c --bind /proc/self/fd/8 "$folder"
[ "$share" = / ] || { mkdir -p "$share"; mount -c --bind /proc/self/fd/9 "$share"; }
[ "$share" != / ] || while read -r _ at _; do
    case $at in
    "$folder" | /run | /proc | /proc/* | /sys | /sys/* | /dev | /dev/*) ;;
    *) mount -o remount,bind,ro "$at" 2>/dev/null ;;
    esac
done </proc/self/mounts
exec "$@" 8<&- 9<&-
"""
"""A mount namespace for virtiofsd: what it notes in /run goes with it, and a root is there to be read."""

KERNEL = "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check"
"""The kernel's command line. It does not check its timer: without KVM, where others have the CPU for a while,
no tick comes in time, and it would panic (`IO-APIC + timer doesn't work`)."""


def share(program: Path, folder: Path, socket: Path, cache: str) -> list[str]:
    """A folder for the virtual machine, by the virtiofsd that there is."""
    if program.parent.name == "qemu":
        # QEMU's own, in C, until 7.2
        options = f"source={folder},cache={cache},sandbox=chroot"
        return [str(program), f"--socket-path={socket}", "-o", options]
    return [str(program), "--socket-path", str(socket), "--shared-dir", str(folder), "--cache", cache,
            "--sandbox", "chroot"]  # fmt: skip


def private(command: list[str], folder: Path, share: Path) -> list[str]:
    """The same in a mount namespace of its own, where a root that is shared cannot be written to."""
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PRIVATE, "sh"]
    return [*words, str(folder), str(share), *command]


def qemu(made: Setup, accelerator: str, folder: Path, sockets: Mapping[str, Path]) -> list[str]:
    """QEMU, with the shares and serial ports by their sockets, and no network."""
    command = [
        str(made.qemu), "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot",
        "-machine", "q35", "-accel", ACCEL[accelerator], "-cpu", CPU[accelerator],
        "-smp", str(made.processors), "-m", f"{made.memory >> 20}M", "-numa", "node,memdev=memory",
        "-object", f"memory-backend-memfd,id=memory,size={made.memory >> 20}M,share=on",
        "-kernel", str(made.kernel.image), "-initrd", str(folder / "initramfs"),
        "-append", f"{KERNEL} {MARK}={accelerator}",
        "-serial", f"file:{folder / 'console.log'}",
        "-device", "virtio-serial-pci",
    ]  # fmt: skip
    for number, (name, socket) in enumerate(sockets.items()):
        command += ["-chardev", f"socket,id=c{number},path={socket}"]
        kind = f"virtserialport,name={name}" if name in PORTS else f"vhost-user-fs-pci,tag={name}"
        command += ["-device", f"{kind},chardev=c{number}"]
    return command
