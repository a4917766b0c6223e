"""What `ethtool` sets, by the same calls (include/uapi/linux/ethtool.h): rings, queues, features."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Set
from dataclasses import dataclass
from functools import cache

from netdyno.stats.observation import Value
from netdyno.tuning.access.base import Saved, Target, Values, there
from netdyno.tuning.access.files import DEVICES, put_files

SIOCETHTOOL = 0x8946
GSSET_INFO, GSTRINGS = 0x37, 0x1B
GFEATURES, SFEATURES = 0x3A, 0x3B
SS_FEATURES = 4
STRING = 32


@dataclass(frozen=True)
class Group:
    """A structure of 32 bit numbers, the command first; names with their place in it."""

    get: int
    set: int
    size: int
    keys: dict[str, int]
    most: dict[str, int]
    """The place of the largest value that the device takes."""
    switches: frozenset[str] = frozenset()
    least: int = 0


GROUPS = {
    "ring": Group(0x10, 0x11, 9, {"rx": 5, "tx": 8}, {"rx": 1, "tx": 4}, least=1),
    "coalesce": Group(
        0x0E,
        0x0F,
        23,
        {
            "rx_usecs": 1, "rx_frames": 2, "adaptive_rx": 10,
            "tx_usecs": 5, "tx_frames": 6, "adaptive_tx": 11,
        },
        {},
        frozenset({"adaptive_rx", "adaptive_tx"}),
    ),
    "channels": Group(
        0x3C, 0x3D, 9, {"rx": 5, "tx": 6, "combined": 8}, {"rx": 1, "tx": 2, "combined": 4}, least=1
    ),
}  # fmt: skip
QUEUE_FILES = ("queues/*/rps_cpus", "queues/*/rps_flow_cnt", "queues/*/xps_cpus")
"""Set anew by the kernel when a queue is made."""


class Ethtool:
    """Parameters of a device: a group of numbers, or `feature` with names of the kernel's as its keys."""

    def read(self, target: Target) -> dict[str, Value]:
        """All of the group. A feature is on when one of its names is."""
        if target.path == "feature":
            _, on, free = _features(target.device)
            return {name: "on" if name in on else "off" for name in on | free}
        group = GROUPS[target.path]
        now = _numbers(target.device, group)
        # a device without such a ring or queue says that it takes none at most
        there = [key for key in group.keys if key not in group.most or now[group.most[key]]]
        return {
            key: ("on" if now[group.keys[key]] else "off") if key in group.switches else now[group.keys[key]]
            for key in there
        }

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """What the device takes."""
        if target.path == "feature":
            return {}
        group = GROUPS[target.path]
        now = _numbers(target.device, group)
        return {key: (group.least, now[place]) for key, place in group.most.items() if now[place]}

    def writable(self, target: Target, key: str) -> bool:
        """Of features it is known; of others the driver says so only when it is asked to."""
        return target.path != "feature" or not _features(target.device)[2].isdisjoint(key.split())

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The values; with channels, what is set of the queues that go or are made anew."""
        if target.path == "feature":
            wanted, _, _ = _features(target.device)
            return {name: name in wanted for key in keys for name in key.split()}
        now = self.read(target)
        if not keys <= now.keys():
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), target.device)
        saved: Saved = {key: now[key] for key in keys}
        if target.path == "channels":
            base = DEVICES / target.device
            files = [path for pattern in QUEUE_FILES for path in sorted(base.glob(pattern))]
            saved["queues"] = {str(path.relative_to(base)): path.read_text().strip() for path in files
                               if _readable(path)}  # fmt: skip
        return saved

    def write(self, target: Target, values: Values) -> None:
        """Set these, leave the others of the group."""
        if target.path == "feature":
            chosen = {name: word == "on" for key, word in values.items() for name in key.split()}
            _set_features(target.device, chosen)
            return
        group = GROUPS[target.path]
        numbers = _numbers(target.device, group)
        for key, new in values.items():
            numbers[group.keys[key]] = int(new == "on") if key in group.switches else int(new)
        numbers[0] = group.set
        call(target.device, bytearray(struct.pack(f"={group.size}I", *numbers)))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The values, without what is set of queues: that comes and goes with them."""

        def read_features() -> Saved:
            if target.path == "feature":
                wanted, _, _ = _features(target.device)
                return {name: name in wanted for name in saved}
            return {key: value for key, value in self.read(target).items() if key in saved}

        return dict(there(read_features))

    def put(self, target: Target, saved: Saved) -> bool:
        """As it was."""
        queues = saved.get("queues", {})
        old = {key: value for key, value in saved.items() if key != "queues"}
        try:
            if target.path == "feature":
                wanted, _, _ = _features(target.device)
                done = any((name in wanted) != on for name, on in old.items())
                if done:
                    _set_features(target.device, old)
                return done
            now = self.read(target)
            done = any(now.get(key) != value for key, value in old.items())
            if done:
                self.write(target, old)
            return put_files(DEVICES / target.device, queues) or done
        except OSError as e:
            if e.errno == errno.ENODEV:
                return False
            raise


def _numbers(device: str, group: Group) -> list[int]:
    data = bytearray(struct.pack(f"={group.size}I", group.get, *[0] * (group.size - 1)))
    call(device, data)
    return list(struct.unpack(f"={group.size}I", data))


def _features(device: str) -> tuple[set[str], set[str], set[str]]:
    """Names that are wanted, that are on, and that can be changed."""
    names = _feature_names()
    blocks = (len(names) + 31) // 32
    data = bytearray(struct.pack("=II", GFEATURES, blocks) + bytes(16 * blocks))
    call(device, data)
    wanted, on, free = set[str](), set[str](), set[str]()
    for i, name in enumerate(names):
        available, requested, active_bits, _ = struct.unpack_from("=4I", data, 8 + 16 * (i // 32))
        bit = 1 << (i % 32)
        for bits, found in ((requested, wanted), (active_bits, on), (available, free)):
            if bits & bit and name:
                found.add(name)
    return wanted, on, free


def _set_features(device: str, chosen: dict[str, bool]) -> None:
    names = _feature_names()
    blocks = (len(names) + 31) // 32
    valid, requested = [0] * blocks, [0] * blocks
    _, _, free = _features(device)
    for i, name in enumerate(names):
        if name in chosen and name in free:
            valid[i // 32] |= 1 << (i % 32)
            requested[i // 32] |= chosen[name] << (i % 32)
    if not any(valid):
        raise OSError(errno.EOPNOTSUPP, "the device does not let it be changed", device)
    body = b"".join(struct.pack("=II", v, r) for v, r in zip(valid, requested, strict=True))
    call(device, bytearray(struct.pack("=II", SFEATURES, blocks) + body))


@cache
def _feature_names() -> tuple[str, ...]:
    """What the kernel calls its features, in their order; the same for all devices."""
    info = bytearray(struct.pack("=IIQI", GSSET_INFO, 0, 1 << SS_FEATURES, 0))
    call("lo", info)
    count = struct.unpack_from("=I", info, 16)[0]
    data = bytearray(struct.pack("=III", GSTRINGS, SS_FEATURES, count) + bytes(STRING * count))
    call("lo", data)
    texts = [data[12 + STRING * i : 12 + STRING * (i + 1)] for i in range(count)]
    return tuple(bytes(text).split(b"\0")[0].decode() for text in texts)


def call(device: str, data: bytearray) -> None:
    """One call about a device; the kernel's answer is in `data` after it."""
    held = (ctypes.c_char * len(data)).from_buffer(data)
    request = struct.pack("@16sP", device.encode()[:15], ctypes.addressof(held)).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, SIOCETHTOOL, request)
        except OSError as e:
            raise OSError(e.errno, os.strerror(e.errno or 0), device) from e


def _readable(path: os.PathLike[str]) -> bool:
    try:
        with open(path) as file:  # noqa: PTH123 - a path of any kind
            file.read()
    except OSError:
        return False
    return True
