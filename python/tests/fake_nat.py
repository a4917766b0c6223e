"""What the stand-in for `netdynod` tells of a NAT: a fixed population of subscribers and sessions."""

from __future__ import annotations

from typing import Any

WORKER = {
    "sessions": 1250, "most_sessions": 1 << 20, "subscribers": 5, "most_subscribers": 1 << 14, "addresses": 16,
    "blocks": 2016, "blocks_free": 2000, "forwarded_up": 1_000_000, "forwarded_down": 2_000_000, "slow": 1250,
    "drops": {"no_mapping": 7, "bad_checksum": 0}, "pcp": {"SUCCESS": 3},
    "memory_bytes": 117_440_512, "log_lost": 0, "log_suppressed": 0, "restored": None,
}  # fmt: skip
PAIR = {
    "role": "active", "since_s": 90.0, "socket": "/run/netdyno/cgn.pair", "peer": 4711, "synced": True, "takeovers": 1,
    "takeover": {"cause": "closed", "since_heard_ms": 61.5, "took_ms": 1.25, "ago_s": 90.0}, "told": 12_345, "lost": 2,
    "applied": 0, "sweeps": 0, "lag_ms": 0.0, "left_out": {"forward": 3}, "error": None,
}  # fmt: skip
STANDBY = PAIR | {"role": "standby", "applied": 678, "sweeps": 9, "lag_ms": 2.5}
SESSIONS = [
    {
        "protocol": ("udp", "tcp", "icmp")[i % 3], "inside": f"10.0.0.{i % 10}:{40_000 + i}",
        "outside": f"203.0.113.{16 + i % 10}:{1024 + i}", "remote": None if i == 9 else "198.51.100.9:443", "vlans": [100] if i % 10 == 7 else [],
        "state": "open", "idle_s": 1.5, "packets_up": 1000 + i, "bytes_up": 64_000, "packets_down": 2000,
        "bytes_down": 3_000_000,
    }
    for i in range(2500)
]  # fmt: skip
SUBSCRIBERS = [
    {
        "address": f"10.0.0.{i}", "vlans": [100] if i == 7 else [], "outside": None if i == 9 else f"203.0.113.{16 + i}",
        "sessions": 250, "blocks": [] if i == 9 else [[1536, 2047], [1024, 1535], [4096, 4607]],
    }
    for i in range(10)
]  # fmt: skip
POOLS = [
    {
        "element": f"conntrack#{i}", "address": f"203.0.113.{16 + j}", "ports": [1024 + 32256 * i, 33279 + 32256 * i],
        "blocks": 63, "blocks_free": 60, "subscribers": 2, "draining": j == 1, "used": {"tcp": 700, "udp": 300, "icmp": 1},
        "resting": {"tcp": 20, "udp": 10, "icmp": 0},
    }
    for i in range(2) for j in range(2)
]  # fmt: skip
SITES = [
    {
        "site": "VLAN 7", "vlans": [7], "mac": "02:4e:44:00:00:00", "address": "203.0.113.100", "state": "bound",
        "lease_s": 1800.0, "server": "203.0.113.1", "subscribers": 12, "worker": 1,
    },
    {
        "site": "VLAN 8", "vlans": [8], "mac": "02:4e:44:00:00:01", "address": None, "state": "released", "lease_s": None,
        "server": None, "subscribers": 0, "worker": 0,
    },
]  # fmt: skip


handed_over: list[bool] = []
"""Whether it has handed over to the other of its pair."""


def belongs(one: dict[str, Any], p: dict[str, Any]) -> bool:
    """Whether a session or subscriber is one of those that are asked for."""
    inside = one.get("inside", one.get("address", "")).partition(":")[0]
    outside = one["outside"] or ""
    if ":" not in p.get("outside", ""):
        outside = outside.partition(":")[0]
    remote, protocol = one.get("remote"), one.get("protocol")
    return (
        p.get("subscriber", inside) == inside
        and p.get("outside", outside) == outside
        and p.get("remote", remote) == remote
        and p.get("protocol", protocol) == protocol
    )


def cleared(p: dict[str, Any]) -> dict[str, Any]:
    """A thousand sessions at a time; they stay."""
    meant = [one for one in SESSIONS if belongs(one, p) and (p["mappings"] or one["remote"])]
    start = int(p.get("cursor", 0))
    end = start + 1000
    return {"ended": len(meant[start:end]), "next": str(end) if end < len(meant) else None}


def answer(method: str, p: dict[str, Any]) -> dict[str, Any]:
    """The answer to a `nat.*` method; ValueError where a parameter is out of bounds."""
    if method == "nat.status":
        workers = [WORKER | {"element": f"conntrack#{i}"} for i in range(2)]
        return {"workers": workers, "pair": STANDBY if handed_over else PAIR}
    if method == "nat.clear":
        return cleared(p)
    if method == "nat.reload":
        return {"changed": ["forwards", "udp_filtering"], "left_out": []}
    if method == "nat.hand_over":
        handed_over.append(True)
        return {}
    key = method.removeprefix("nat.")
    if key == "sites":
        return {key: SITES, "next": None}
    if p.get("limit", 100) > 1000:
        raise ValueError("limit is above 1000")
    all_of = {"sessions": SESSIONS, "subscribers": SUBSCRIBERS, "pools": POOLS}[key]
    wanted = all_of if key == "pools" else [one for one in all_of if belongs(one, p)]
    start = int(p.get("cursor", 0))
    end = start + p.get("limit", 100)
    return {key: wanted[start:end], "next": str(end) if end < len(wanted) else None}
