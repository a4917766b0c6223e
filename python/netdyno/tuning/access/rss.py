"""Over how many receive queues a device spreads packets by their hash (RSS; `ethtool -X DEVICE equal N`)."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence, Set

from netdyno.stats.observation import Value
from netdyno.tuning.access import ethtool
from netdyno.tuning.access.base import Saved, Target, Values, there

GRXRINGS, GRXFHINDIR, SRXFHINDIR = 0x2D, 0x38, 0x39
"""Commands of linux/ethtool.h: receive queues, and the table from hashes to them."""
RXNFC = struct.Struct("=IIQ")
"""The beginning of struct ethtool_rxnfc: command, kind of flow, data."""
RXNFC_SIZE = 192


class Rss:
    """The table from hashes to receive queues, by how many queues it names in turn."""

    def read(self, target: Target) -> dict[str, Value]:
        """How many queues, or the queues of the table where they do not take turns."""
        table = _table(target.device)
        queues = max(table) + 1
        if table == _spread(len(table), queues):
            return {"": queues}
        return {"": "queues " + " ".join(map(str, sorted(set(table))))}

    def limits(self, target: Target) -> dict[str, tuple[int, int]]:
        """As many queues as the device receives on."""
        data = bytearray(RXNFC.pack(GRXRINGS, 0, 0).ljust(RXNFC_SIZE, b"\0"))
        ethtool.call(target.device, data)
        return {"": (1, max(1, RXNFC.unpack_from(data)[2]))}

    def writable(self, target: Target, key: str) -> bool:
        """A driver with a table lets it be set, or says so only when it is asked to."""
        return True

    def save(self, target: Target, keys: Set[str]) -> Saved:
        """The whole table."""
        return {"": _table(target.device)}

    def write(self, target: Target, values: Values) -> None:
        """Have this many queues take turns."""
        _set(target.device, _spread(len(_table(target.device)), int(values[""])))

    def now(self, target: Target, saved: Saved) -> Saved:
        """The whole table."""
        return dict(there(lambda: self.save(target, {""})))

    def put(self, target: Target, saved: Saved) -> bool:
        """The old table."""
        now = there(lambda: self.save(target, {""}))
        if not now or now == saved or len(now[""]) != len(saved[""]):
            return False
        _set(target.device, saved[""])
        return True


def _spread(size: int, queues: int) -> list[int]:
    return [place % queues for place in range(size)]


def _table(device: str) -> list[int]:
    head = bytearray(struct.pack("=II", GRXFHINDIR, 0))
    ethtool.call(device, head)
    size = struct.unpack_from("=I", head, 4)[0]
    if not size:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), device)
    data = bytearray(struct.pack("=II", GRXFHINDIR, size) + bytes(4 * size))
    ethtool.call(device, data)
    return list(struct.unpack_from(f"={size}I", data, 8))


def _set(device: str, table: Sequence[int]) -> None:
    ethtool.call(device, bytearray(struct.pack(f"=II{len(table)}I", SRXFHINDIR, len(table), *table)))
