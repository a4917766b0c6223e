"""Deep packet inspection on a mirror: `dpi`."""

from __future__ import annotations

import re
import signal
from typing import ClassVar

from netdyno.switch.chain.vnf.base import IN, Vnf
from netdyno.system.process import find, last_lines


class Dpi(Vnf):
    """ndpiReader over copies of packets."""

    kind: ClassVar[str] = "dpi"
    about: ClassVar[str] = "deep packet inspection of copies (ndpiReader)"
    mirror: ClassVar[bool] = True
    _found = ""
    program: ClassVar[tuple[str, str] | None] = ("ndpiReader", "libndpi-bin")

    def setup(self) -> None:
        """Listen on its port."""
        self.run("ip", "link", "set", IN, "up", "promisc", "on")
        self.start([find("ndpiReader", "libndpi-bin"), "-i", IN, "-v", "1"])

    def teardown(self) -> None:
        """Asked to end, it tells what it found."""
        if self.process and self.process.exited() is None:
            self.process.send_all(signal.SIGINT)
            self.process.wait(5.0)
            # its log goes with the chain
            self._found = self._read()
        super().teardown()

    def report(self) -> str:
        """Protocols that it detected."""
        return f"protocols of the packets that it got copies of: {self._found}" if self._found else ""

    def _read(self) -> str:
        text = "\n".join(last_lines(self.site.folder / f"vnf-{self.site.name}.log", 1 << 18))
        _, _, found = text.partition("Detected protocols:")
        names = re.findall(r"^(\S+)\s+packets:\s*([0-9]+)", found, re.MULTILINE)
        return ", ".join(f"{name} {count} packets" for name, count in names)
