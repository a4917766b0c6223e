"""What a result was measured on: everything that could explain a difference, and nothing that is private.

No environment variables, no host or user names, no addresses but those of the experiment.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from netdyno import __version__, paths
from netdyno.system import namespace
from netdyno.system.vm import inside

SYSCTLS = (
    "net.core.somaxconn", "net.core.rmem_max", "net.core.rmem_default", "net.core.wmem_max",
    "net.core.wmem_default", "net.core.netdev_max_backlog", "net.core.netdev_budget", "net.core.busy_poll",
    "net.core.busy_read", "net.core.default_qdisc", "net.core.optmem_max", "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem", "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies", "net.ipv4.tcp_fastopen", "net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat", "net.ipv4.ip_local_port_range",
    "net.ipv4.ping_group_range", "net.ipv4.udp_mem", "net.ipv4.tcp_mem", "fs.nr_open", "fs.file-max",
)  # fmt: skip


def collect(
    interfaces: Iterable[tuple[str | None, str]] = (), duts: dict[str, str] | None = None
) -> dict[str, Any]:
    """The machine, its kernel's settings, the interfaces in use (namespace, name), and versions."""
    return {
        "cpu": cpu(),
        "memory_bytes": _memory(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "distribution": _distribution(),
        "hypervisor": _run("systemd-detect-virt") or ("yes" if "hypervisor" in _flags() else "none"),
        "virtual_machine": inside.accelerator(),
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "huge_pages": {
            "total": _meminfo("HugePages_Total"),
            "free": _meminfo("HugePages_Free"),
        },
        "sysctl": {key: value for key in SYSCTLS if (value := _sysctl(key)) is not None},
        "interfaces": [interface(ns, name) for ns, name in interfaces],
        "versions": versions() | (duts or {}),
        "git": git(),
    }


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What of the environments could explain a difference."""
    found = [
        key
        for key in ("kernel", "memory_bytes", "clocksource", "hypervisor", "virtual_machine")
        if a.get(key) != b.get(key)
    ]
    for part in ("cpu", "sysctl", "versions"):
        x, y = a.get(part) or {}, b.get(part) or {}
        found += [f"{part}.{key}" for key in sorted(x.keys() | y.keys()) if x.get(key) != y.get(key)]
    if (a.get("git") or {}) != (b.get("git") or {}):
        found.append("git")
    return found


def cpu() -> dict[str, Any]:
    """Model, cores, and what moves their speed."""
    model = re.search(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo") or "")
    return {
        "model": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        "usable": sorted(os.sched_getaffinity(0)),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "isolated": _read("/sys/devices/system/cpu/isolated") or "",
        "smt": _read("/sys/devices/system/cpu/smt/control"),
        "mitigations": "off" if "mitigations=off" in (_read("/proc/cmdline") or "") else "default",
        "flags": [flag for flag in ("avx2", "avx512f", "constant_tsc", "nonstop_tsc") if flag in _flags()],
    }


def interface(ns: str | None, name: str) -> dict[str, Any]:
    """Driver, MTU, rings and offloads of one interface."""
    about: dict[str, Any] = {"name": name}
    ethtool = shutil.which("ethtool") or "/usr/sbin/ethtool"
    driver = namespace.inside(ns, lambda: _run(ethtool, "-i", name)) or ""
    if found := re.search(r"driver: (\S+)", driver):
        about["driver"] = found.group(1)
    features = namespace.inside(ns, lambda: _run(ethtool, "-k", name)) or ""
    about["offloads"] = {
        key: value
        for key, value in re.findall(r"^([a-z0-9-]+): (on|off)", features, re.MULTILINE)
        if key in OFFLOADS
    }
    shown = namespace.inside(ns, lambda: _run("ip", "-o", "link", "show", name)) or ""
    if found := re.search(r"mtu (\d+)", shown):
        about["mtu"] = int(found.group(1))
    return about


OFFLOADS = (
    "rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
    "generic-segmentation-offload", "generic-receive-offload", "large-receive-offload", "tx-udp-segmentation",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Programs whose version can matter."""
    found = {"netdyno": __version__, "python": platform.python_version()}
    dpdk = _run("pkg-config", "--modversion", "libdpdk")
    if dpdk:
        found["dpdk"] = dpdk
    return found


def git() -> dict[str, Any] | None:
    """The revision of the source tree that this runs from."""
    root = paths.source()
    if root is None or not (root / ".git").exists():
        return None
    revision = _run("git", "-C", str(root), "rev-parse", "HEAD")
    dirty = _run(
        "git", "--no-optional-locks", "-C", str(root), "status", "--porcelain", "--untracked-files=no"
    )
    return {"revision": revision, "dirty": bool(dirty)} if revision else None


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _sysctl(key: str) -> str | None:
    return _read(f"/proc/sys/{key.replace('.', '/')}")


def _flags() -> set[str]:
    found = re.search(r"^flags\s*:\s*(.+)", _read("/proc/cpuinfo") or "", re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def _meminfo(key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+)", _read("/proc/meminfo") or "", re.MULTILINE)
    return int(found.group(1)) if found else 0


def _memory() -> int:
    return _meminfo("MemTotal") * 1024


def _distribution() -> str | None:
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release") or "", re.MULTILINE)
    return found.group(1) if found else None
