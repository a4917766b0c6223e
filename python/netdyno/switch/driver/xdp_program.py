"""The programs of the switch `xdp`, and the process that holds them.

    python -m netdyno.switch.driver.xdp_program native '[["NAMESPACE", "INTERFACE", TO], …]'

`TO` is the number of the interface, in the same namespace, that frames are handed to; 0: they pass. It prints
`ready`. The kernel takes the programs off when the process ends, however that happens.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import sys

from netdyno.system import namespace

LIBRARY = "libbpf.so.1"
READY = "ready"
PROG_TYPE_XDP, ATTACH_XDP = 6, 37
MODES = {"generic": 1 << 1, "native": 1 << 2}
"""Flags `XDP_FLAGS_…_MODE` of the kernel."""
XDP_PASS, REDIRECT = 2, 23
"""What a program returns; number of the helper function `bpf_redirect`."""
_MOVE, _CALL, _EXIT = 0xB7, 0x85, 0x95


class _LinkOptions(ctypes.Structure):
    """`struct bpf_link_create_opts` as far as it is needed; the library takes shorter ones."""

    _fields_ = (("sz", ctypes.c_size_t), ("flags", ctypes.c_uint32))


def program(to: int) -> bytes:
    """Instructions of `return bpf_redirect(to, 0)`, or of `return XDP_PASS`."""
    if not to:
        return _instruction(_MOVE, 0, XDP_PASS) + _instruction(_EXIT)
    return (
        _instruction(_MOVE, 1, to)
        + _instruction(_MOVE, 2, 0)
        + _instruction(_CALL, 0, REDIRECT)
        + _instruction(_EXIT)
    )


def _instruction(code: int, register: int = 0, value: int = 0) -> bytes:
    """`struct bpf_insn`; its bitfields begin at the high end of a byte on big-endian machines."""
    registers = register if sys.byteorder == "little" else register << 4
    return struct.pack("=BBhi", code, registers, 0, value)


def attach(library: ctypes.CDLL, space: str | None, interface: str, to: int, mode: str) -> None:
    """Load a program and attach it by a link, which lasts as long as this process. Raises OSError."""
    code = program(to)
    made = library.bpf_prog_load(PROG_TYPE_XDP, b"netdyno", b"Apache-2.0", code, len(code) // 8, None)
    if made < 0:
        raise OSError(-made, f"the kernel takes no XDP program: {os.strerror(-made)}")
    options = _LinkOptions(ctypes.sizeof(_LinkOptions), MODES[mode])

    def link() -> int:
        index = socket.if_nametoindex(interface)
        return int(library.bpf_link_create(made, index, ATTACH_XDP, ctypes.byref(options)))

    if (done := namespace.inside(space, link)) < 0:
        raise OSError(-done, f"{interface} takes no {mode} XDP program: {os.strerror(-done)}")
    os.close(made)


def main() -> None:
    """Attach all, say so, and wait for the end."""
    mode, every = sys.argv[1], json.loads(sys.argv[2])
    library = ctypes.CDLL(LIBRARY)
    library.bpf_prog_load.argtypes = (
        ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p,
    )  # fmt: skip
    try:
        for space, interface, to in every:
            attach(library, space, interface, to, mode)
    except OSError as e:
        sys.exit(e.strerror or str(e))
    print(READY, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
