"""What a process in the virtual machine knows of it, by the kernel's command line."""

from __future__ import annotations

import re
from pathlib import Path

MARK = "netdyno.vm"


def accelerator(cmdline: Path = Path("/proc/cmdline")) -> str | None:
    """`kvm` or `tcg` in a virtual machine that netdyno started; None elsewhere."""
    try:
        found = re.search(rf"(?:^|\s){re.escape(MARK)}=(\w+)", cmdline.read_text())
    except OSError:
        return None
    return found[1] if found else None
