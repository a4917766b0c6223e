"""What runs in the virtual machine before and around the command: two shell scripts, and what they say.

The first mounts this machine's root read-only below a file system in memory. The second is process 1 then: it
runs the command, passes on what it is told, and says how the command ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

OUT, ERR, CONTROL = "netdyno.out", "netdyno.err", "netdyno.control"
"""Names of the serial ports: what the command prints, its notes, and what is told either way."""
END = b"\0"
"""Ends what the command prints: it prints text."""
BEAT = 5
"""Seconds between signs of life."""

_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for m in $($b cat /modules/order); do $b insmod /modules/$m || echo "netdyno: no $m"; done
$b mount -t virtiofs -o ro root /lower
$b mount -t tmpfs -o mode=755,size=75% tmpfs /upper
$b mkdir /upper/data /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /new
for d in dev proc sys run; do $b mkdir -p /new/$d; done
$b mount -t tmpfs -o mode=755 tmpfs /new/run
$b mkdir -p /new/run/lock /new{modules} /new/lib/modules/{release} /new{share}
$b mount --bind /lower{modules} /new/lib/modules/{release}
$b mount -t virtiofs share /new{share}
# that of kmod reads only its own index, which is not there where BusyBox made the list of modules
[ -e /new/sbin/modprobe ] && [ -e /new/lib/modules/{release}/modules.dep.bin ] ||
    $b ln -sf {busybox} /new/sbin/modprobe
$b cp /agent /new/run/netdyno-agent
for d in dev proc sys; do $b mount --move /$d /new/$d; done
exec $b switch_root /new /run/netdyno-agent
"""

_AGENT = """\
#!/bin/sh
export PATH={path}
port() {{
    for at in /sys/class/virtio-ports/*; do
        read -r name <"$at/name" && [ "$name" = "$1" ] && echo "/dev/${{at##*/}}" && return
    done
}}
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
exec 3<>"$(port {control})" 4>"$(port {out})" 5>"$(port {err})"
cd {folder} || exit
{command} </dev/null >&4 2>&5 3>&- 4>&- 5>&- &
command=$!
echo up >&3
while sleep {beat}; do echo alive >&3; done 4>&- 5>&- &
(
    while read -r word; do [ "$word" != stop ] || kill -TERM $command; done <&3
    # nobody is there any more
    echo o >/proc/sysrq-trigger
) 4>&- 5>&- &
wait $command
code=$?
sync
printf '\\000' >&4
printf '\\000' >&5
echo "exit $code" >&3
while :; do sleep 60; done
"""


def init(release: str, modules: Path, busybox: Path, share: Path) -> str:
    """The script of the first file system."""
    quoted = {"modules": modules, "busybox": busybox, "share": share}
    return _INIT.format(release=release, **{key: shlex.quote(str(one)) for key, one in quoted.items()})


def agent(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Process 1 in the root file system: it runs the command in a folder, with this environment alone."""
    values = [f"{name}={value}" for name, value in environment.items()]
    return _AGENT.format(
        command=shlex.join(["env", "-i", *values, *command]),
        folder=shlex.quote(str(folder)),
        path=shlex.quote(environment.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")),
        control=CONTROL, out=OUT, err=ERR, beat=BEAT,
    )  # fmt: skip
