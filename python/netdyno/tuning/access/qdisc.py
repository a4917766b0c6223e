"""What `tc` sets: the queue discipline of a device, and how much may wait in it."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from netdyno.stats.observation import Value
from netdyno.system.process import find
from netdyno.tuning.access.base import Saved, Target, Values, there

KERNELS, OURS = "0:", ("4e44:", "4e45:")
"""Handles of queue disciplines: the kernel's own, and ours: one of another kind needs another handle."""


class Qdisc:
    """The queue discipline at the root of a device. One that somebody made is not ours to replace."""

    def read(self, target: Target) -> dict[str, Value]:
        """Its kind now."""
        return {"": str(_root(target.device)["kind"])}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """There are none."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """Whether it is the one that the kernel made, or we."""
        return _root(target.device)["handle"] in (KERNELS, *OURS)

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """Whose it is, and of what kind."""
        root = _root(target.device)
        if root["handle"] not in (KERNELS, *OURS):
            what = "it has a queue discipline that somebody made, which could not be made again as it was"
            raise OSError(errno.EBUSY, what, target.device)
        return {"": root["kind"], "handle": root["handle"]}

    def write(self, target: Target, values: Values) -> None:
        """Put one in its place."""
        handle = OURS[_root(target.device)["handle"] == OURS[0]]
        _tc("qdisc", "replace", "dev", target.device, "root", "handle", handle, str(values[""]))

    def now(self, target: Target, saved: Saved) -> Saved:
        """Its kind; the handle goes with it."""
        return dict(there(lambda: self.read(target)))

    def put(self, target: Target, saved: Saved) -> bool:
        """Take ours away: the kernel makes its own again. One that somebody else made since is left alone."""
        if "" not in saved:
            return False
        root = there(lambda: _root(target.device))
        was_ours = saved.get("handle") in OURS
        if not root or root["handle"] not in OURS or (was_ours and root["kind"] == saved[""]):
            return False
        if was_ours:
            self.write(target, {"": saved[""]})
        else:
            _tc("qdisc", "del", "dev", target.device, "root")
        return True


LIMITS = {
    "packets": {"pfifo": "limit", "fq": "limit", "fq_codel": "limit"},
    "bytes": {"bfifo": "limit", "cake": "memlimit"},
    "flow": {"fq": "flow_limit"},
}
"""What bounds a queue, and how the disciplines that have such a bound call it."""
EACH_QUEUE = "mq"
"""Has a discipline of its own in each queue of the device."""


@dataclass(frozen=True)
class _Queue:
    """A queue discipline that packets wait in."""

    parent: str
    """`root`, or the class of the root that it is of."""
    kind: str
    handle: str
    limit: int

    @property
    def place(self) -> tuple[str, ...]:
        return ("root",) if self.parent == "root" else ("parent", self.parent)


class QdiscLimit:
    """A bound of the queue discipline of a device; of one with several queues, of each.

    That of a discipline which somebody made is changed in place. The kernel's own cannot be changed: one of
    ours of the same kind takes its place, and the kernel makes its own again when that goes.
    """

    def read(self, target: Target) -> dict[str, Value]:
        """The bound, or those of all queues where they differ."""
        each = list(dict.fromkeys(one.limit for one in _queues(target)))
        return {"": each[0] if len(each) == 1 else " ".join(map(str, each))}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """There are none."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """Not where it could not be put back: the kernel's own below a root that somebody made, and a bound
        that the discipline has chosen by itself."""
        kernels = _root(target.device)["handle"] == KERNELS
        return kernels or all(one.handle != KERNELS and one.limit for one in _queues(target))

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """Of each queue the discipline, whose it is, and its bound."""
        if not self.writable(target, ""):
            what = "it has chosen the bound, or is the kernel's own below one that somebody made"
            raise OSError(errno.EBUSY, what, target.device)
        return {_place(one): [one.kind, one.handle, one.limit] for one in _queues(target)}

    def write(self, target: Target, values: Values) -> None:
        """The same for all."""
        device, root = target.device, _root(target.device)
        if root["handle"] == KERNELS and root["kind"] == EACH_QUEUE:
            _tc("qdisc", "replace", "dev", device, "root", "handle", OURS[0], EACH_QUEUE)
        for one in _queues(target):
            bound = (one.kind, LIMITS[target.path][one.kind], str(values[""]))
            if one.handle != KERNELS:
                _tc("qdisc", "change", "dev", device, *one.place, "handle", one.handle, *bound)
            elif one.parent == "root":
                _tc("qdisc", "replace", "dev", device, "root", "handle", OURS[0], *bound)
            else:
                _tc("qdisc", "replace", "dev", device, *one.place, *bound)

    def now(self, target: Target, saved: Saved) -> Saved:
        """The same of the queues that are still there; the handle goes with them."""
        found = self._there(target)
        return {
            place: [found[place].kind, handle, found[place].limit]
            for place, (_, handle, _) in saved.items()
            if place in found
        }

    def put(self, target: Target, saved: Saved) -> bool:
        """Each its own; a discipline of another kind by now has its own bounds."""
        root = there(lambda: _root(target.device))
        if root and root["handle"] in OURS and any(handle == KERNELS for _, handle, _ in saved.values()):
            _tc("qdisc", "del", "dev", target.device, "root")
            return True
        done = False
        for place, one in self._there(target).items():
            kind, handle, limit = saved.get(place, ("", "", 0))
            if one.kind == kind and one.handle == handle and one.limit != limit:
                bound = (kind, LIMITS[target.path][kind], str(limit))
                _tc("qdisc", "change", "dev", target.device, *one.place, "handle", handle, *bound)
                done = True
        return done

    def _there(self, target: Target) -> dict[str, _Queue]:
        try:
            return {_place(one): one for one in _queues(target)}
        except OSError as e:
            if e.errno in (errno.ENODEV, errno.EOPNOTSUPP):
                return {}
            raise


def _place(one: _Queue) -> str:
    """Which queue it is, whatever the root is called."""
    return one.parent.partition(":")[2] or "root"


def _queues(target: Target) -> list[_Queue]:
    listed = _listed(target.device)
    root = next((one for one in listed if one.get("root")), None)
    several = root is not None and root["kind"] == EACH_QUEUE
    of_root = [one for one in listed if several != bool(one.get("root"))]
    names = LIMITS[target.path]
    if not of_root or any(one["kind"] not in names for one in of_root):
        kinds = ", ".join(dict.fromkeys(str(one["kind"]) for one in of_root)) or "none"
        raise OSError(errno.EOPNOTSUPP, f"its queue discipline ({kinds}) has no such bound", target.device)

    def bound(one: dict[str, Any]) -> int:
        # cake tells none where it has chosen one by its rate; `tc` cannot have it choose again
        return int(one["options"].get(names[one["kind"]], 0))

    found = [_Queue(one.get("parent", "root"), one["kind"], one["handle"], bound(one)) for one in of_root]
    return sorted(found, key=lambda one: one.parent)


def _root(device: str) -> dict[str, Any]:
    # a device that is down and was never up has none yet
    return next((one for one in _listed(device) if one.get("root")), {"kind": "noop", "handle": KERNELS})


def _listed(device: str) -> list[dict[str, Any]]:
    return [dict(one) for one in json.loads(_tc("-j", "qdisc", "show", "dev", device) or "[]")]


def _tc(*words: str) -> str:
    command = [find("tc", "iproute2"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"{' '.join(command)} failed"
        gone = "Cannot find device" in said
        raise OSError(errno.ENODEV if gone else errno.EOPNOTSUPP, said, words[-1])
    return done.stdout
