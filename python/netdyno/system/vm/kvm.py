"""Whether KVM works here: the file /dev/kvm alone says nothing."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

CREATE_VM, CREATE_VCPU = 0xAE01, 0xAE41
"""KVM_CREATE_VM and KVM_CREATE_VCPU of linux/kvm.h."""


def trouble(root: Path = Path("/")) -> str:
    """Why KVM cannot be used; empty where it can: the processor has it, and makes a VM with a processor."""
    device = root / "dev/kvm"
    if not device.exists():
        return "there is no /dev/kvm"
    flags = re.search(r"^flags\s*:(.*)", _text(root / "proc/cpuinfo"), re.MULTILINE)
    if not flags or not {"vmx", "svm"} & set(flags[1].split()):
        # a hypervisor below may lend one that runs kernels of its own kind only
        return "the processor has neither vmx nor svm"
    opened: list[int] = []
    try:
        opened.append(os.open(device, os.O_RDWR | os.O_CLOEXEC))
        opened.append(fcntl.ioctl(opened[-1], CREATE_VM, 0))
        opened.append(fcntl.ioctl(opened[-1], CREATE_VCPU, 0))
    except OSError as e:
        return f"/dev/kvm: {e.strerror}"
    finally:
        for one in reversed(opened):
            os.close(one)
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
