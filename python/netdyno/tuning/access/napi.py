"""What netlink (`netdev`, Linux 6.13) sets of each NAPI instance: a queue of a device, as it is polled.

An instance has an identifier for as long as the device is up; those that come later begin with the device's
values.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

from netdyno.stats.observation import Value
from netdyno.tuning.access.base import Saved, Target, Values, there
from netdyno.tuning.access.files import Sysfs

GET, SET = 11, 14
"""Commands of include/uapi/linux/netdev.h."""
OF_FILE = {"napi_defer_hard_irqs": "defer-hard-irqs", "gro_flush_timeout": "gro-flush-timeout"}
"""Files of a device that the kernel writes through to each of its instances."""


class Napi:
    """A value of each instance of a device, by the instance's identifier."""

    def read(self, target: Target) -> dict[str, Value]:
        """The value, or those of all instances where they differ."""
        each = list(dict.fromkeys(_values(target).values()))
        return {"": each[0] if len(each) == 1 else " ".join(map(str, each))}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """Not to be had."""
        return {}

    def writable(self, target: Target, key: str) -> bool:
        """The kernel that tells them takes them."""
        return True

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The value of each."""
        return {str(number): value for number, value in _values(target).items()}

    def write(self, target: Target, values: Values) -> None:
        """The same for all."""
        _set(target, dict.fromkeys(_values(target), int(values[""])))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The value of each that is still there."""
        return {number: value for number, value in self._there(target).items() if number in saved}

    def put(self, target: Target, saved: Saved) -> bool:
        """Each its own; one that is gone needs none."""
        now = self.now(target, saved)
        changed = {int(number): int(saved[number]) for number in now if now[number] != saved[number]}
        if changed:
            _set(target, changed)
        return bool(changed)

    def _there(self, target: Target) -> Saved:
        try:
            return dict(there(lambda: self.save(target, {""})))
        except OSError as e:
            if e.errno == errno.EOPNOTSUPP:  # a device that is down has no instances
                return {}
            raise


class DeviceNapi(Sysfs):
    """A file of a device that its instances follow: each of them gets its own back."""

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The text of the file, and the value of each instance."""
        return super().save(target, keys) | self._instances(target)

    def now(self, target: Target, saved: Saved) -> Saved:
        """The same of what is still there."""
        file = {name: text for name, text in saved.items() if not name.isdigit()}
        found = super().now(target, file)
        each = {number: value for number, value in self._instances(target).items() if number in saved}
        if found == file:
            # it is back, and was written to every instance: whoever did that was ended before these were back
            written = {int(text) for text in file.values()}
            each = {number: saved[number] if value in written else value for number, value in each.items()}
        return found | each

    def put(self, target: Target, saved: Saved) -> bool:
        """The file first, which writes to every instance."""
        done = super().put(target, {name: text for name, text in saved.items() if not name.isdigit()})
        return Napi().put(_of_file(target), {n: v for n, v in saved.items() if n.isdigit()}) or done

    def _instances(self, target: Target) -> Saved:
        """Nothing where the kernel has values of the device only."""
        try:
            return Napi().save(_of_file(target), {""})
        except OSError as e:
            if e.errno in (errno.EOPNOTSUPP, errno.ENODEV):
                return {}
            raise


def _of_file(target: Target) -> Target:
    return Target("napi", OF_FILE[target.path], target.device)


def _attribute(target: Target) -> str:
    return f"NAPI_A_{target.path.upper().replace('-', '_')}"


def _values(target: Target) -> dict[int, int]:
    """The value of each instance, by its identifier."""
    try:
        index = socket.if_nametoindex(target.device)
    except OSError as e:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), target.device) from e
    with _netdev() as netdev:
        told = netdev.ask(GET, [("NAPI_A_IFINDEX", index)], dump=True)
    name = _attribute(target)
    found = {int(one.get_attr("NAPI_A_ID")): one.get_attr(name) for one in told}
    if not found:
        raise OSError(errno.EOPNOTSUPP, "it has no NAPI instances", target.device)
    if None in found.values():
        raise OSError(
            errno.EOPNOTSUPP, f"this kernel tells no {target.path} of NAPI instances", target.device
        )
    # the kernel takes as many bytes as a number needs, four or eight
    return {number: int.from_bytes(value, sys.byteorder) for number, value in sorted(found.items())}


def _set(target: Target, values: dict[int, int]) -> None:
    with _netdev() as netdev:
        for number, value in values.items():
            told = value.to_bytes(4 if value < 1 << 32 else 8, sys.byteorder)
            netdev.ask(SET, [("NAPI_A_ID", number), (_attribute(target), told)])


@contextmanager
def _netdev() -> Iterator[Any]:
    """A socket of generic netlink; what the kernel refuses is an OSError."""
    # a large library, of which most commands need nothing
    from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    class Message(genlmsg):  # type: ignore[misc]
        prefix = "NAPI_A_"
        nla_map = (
            ("NAPI_A_UNSPEC", "none"), ("NAPI_A_IFINDEX", "uint32"), ("NAPI_A_ID", "uint32"),
            ("NAPI_A_IRQ", "uint32"), ("NAPI_A_PID", "uint32"), ("NAPI_A_DEFER_HARD_IRQS", "cdata"),
            ("NAPI_A_GRO_FLUSH_TIMEOUT", "cdata"), ("NAPI_A_IRQ_SUSPEND_TIMEOUT", "cdata"),
        )  # fmt: skip

    class Netdev(GenericNetlinkSocket):  # type: ignore[misc]
        def ask(
            self, command: int, attributes: list[tuple[str, int | bytes]], *, dump: bool = False
        ) -> list[Any]:
            message = Message()
            message["cmd"], message["version"] = command, 1
            message["attrs"] = attributes
            flags = NLM_F_REQUEST | (NLM_F_DUMP if dump else NLM_F_ACK)
            return list(self.nlm_request(message, msg_type=self.prid, msg_flags=flags))

    with Netdev() as found:
        try:
            try:
                found.bind("netdev", Message)
            except NetlinkError as e:
                if e.code == errno.ENOENT:
                    what = "this kernel has no family `netdev` of generic netlink"
                    raise OSError(errno.EOPNOTSUPP, what) from e
                raise
            yield found
        except NetlinkError as e:
            raise OSError(e.code, os.strerror(e.code)) from e
