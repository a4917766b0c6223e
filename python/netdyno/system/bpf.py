"""BPF programs in the kernel for as long as this process lives, loaded by libbpf.

Nothing is pinned: programs, maps and links are file descriptors, and go with the process however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

LIBRARY = "libbpf.so.1"
BTF = Path("/sys/kernel/btf/vmlinux")
"""Types of the running kernel."""
ENUM = 6
"""The kind of an enumeration in BTF."""
BATCH = 1024
"""Entries of a map that are read at a time."""


Key = TypeVar("Key", bound=ctypes.Structure)
Of = TypeVar("Of", bound=ctypes.Structure)


class BpfError(Exception):
    """It cannot be had here; the text says why, and `fix` what to do about it."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix


class _BtfType(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("info", ctypes.c_uint32), ("size", ctypes.c_uint32))


class _BtfEnum(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("value", ctypes.c_int32))


@cache
def _library() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as e:
        raise BpfError(f"{LIBRARY} is not there", "Install libbpf (package libbpf1)") from e
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("bpf_object__open_mem", pointer, (text, ctypes.c_size_t, pointer)),
        ("bpf_object__load", ctypes.c_int, (pointer,)),
        ("bpf_object__close", None, (pointer,)),
        ("bpf_object__find_program_by_name", pointer, (pointer, text)),
        ("bpf_object__find_map_fd_by_name", ctypes.c_int, (pointer, text)),
        ("bpf_program__set_autoload", ctypes.c_int, (pointer, ctypes.c_bool)),
        ("bpf_program__attach", pointer, (pointer,)),
        ("bpf_link__destroy", ctypes.c_int, (pointer,)),
        ("bpf_map_update_elem", ctypes.c_int, (ctypes.c_int, pointer, pointer, ctypes.c_uint64)),
        ("bpf_map_lookup_elem", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
        ("bpf_map_lookup_and_delete_batch", ctypes.c_int, (ctypes.c_int, *[pointer] * 6)),
        ("btf__load_vmlinux_btf", pointer, ()),
        ("btf__free", None, (pointer,)),
        ("btf__find_by_name_kind", ctypes.c_int, (pointer, text, ctypes.c_uint32)),
        ("btf__type_by_id", ctypes.POINTER(_BtfType), (pointer, ctypes.c_uint32)),
        ("btf__name_by_offset", text, (pointer, ctypes.c_uint32)),
        ("libbpf_set_print", pointer, (pointer,)),
    ):
        try:
            function = getattr(lib, name)
        except AttributeError as e:
            raise BpfError(f"{LIBRARY} has no {name}", "Install libbpf 1.0 or newer") from e
        function.restype, function.argtypes = result, arguments
    # what it prints of its own is told as an error, or is no matter
    lib.libbpf_set_print(None)
    return lib


def missing() -> BpfError | None:
    """Why programs cannot be loaded here, as far as that shows without loading one."""
    if not BTF.exists():
        return BpfError(f"this kernel has no types ({BTF})", "Take a kernel with CONFIG_DEBUG_INFO_BTF")
    try:
        _library()
    except BpfError as e:
        return e
    return None


class Programs:
    """Programs of an object file, attached to what their sections name."""

    def __init__(self, content: bytes, without: Collection[str] = ()) -> None:
        """`without`: programs that are not loaded."""
        self._lib, self._links = _library(), list[int]()
        self._object = self._lib.bpf_object__open_mem(content, len(content), None)
        if not self._object:
            raise _failed("the programs cannot be read")
        try:
            for name in without:
                self._lib.bpf_program__set_autoload(self._program(name), False)
            if self._lib.bpf_object__load(self._object):
                raise _failed("the kernel does not take the programs")
        except BaseException:
            self.close()
            raise

    def attach(self, names: Collection[str]) -> None:
        """From now on they run."""
        for name in names:
            link = self._lib.bpf_program__attach(self._program(name))
            if not link:
                raise _failed(f"the program {name} cannot be attached")
            self._links.append(link)

    def close(self) -> None:
        """Detached and gone; a second call does nothing."""
        for link in self._links:
            self._lib.bpf_link__destroy(link)
        self._links.clear()
        if self._object:
            self._lib.bpf_object__close(self._object)
        self._object = None

    def put(self, name: str, number: int, value: int) -> None:
        """A number of an array."""
        key, number_of = ctypes.c_uint32(number), ctypes.c_uint64(value)
        if self._lib.bpf_map_update_elem(self._map(name), ctypes.byref(key), ctypes.byref(number_of), 0):
            raise _failed(f"the map {name} cannot be written")

    def get(self, name: str, number: int) -> int:
        """A number of an array."""
        key, value = ctypes.c_uint32(number), ctypes.c_uint64()
        if self._lib.bpf_map_lookup_elem(self._map(name), ctypes.byref(key), ctypes.byref(value)):
            raise _failed(f"the map {name} cannot be read")
        return value.value

    def take(self, name: str, key: type[Key], value: type[Of]) -> list[tuple[Key, Of]]:
        """All entries of a hash map, which is empty then; what is counted meanwhile comes the next time."""
        found, place, first = list[tuple[Key, Of]](), ctypes.c_uint32(), True
        while True:
            keys, values, count = (key * BATCH)(), (value * BATCH)(), ctypes.c_uint32(BATCH)
            begun, went_on = (None if first else ctypes.byref(place)), ctypes.byref(place)
            over = self._lib.bpf_map_lookup_and_delete_batch(
                self._map(name), begun, went_on, keys, values, ctypes.byref(count), None
            )
            if over and ctypes.get_errno() != errno.ENOENT:
                raise _failed(f"the map {name} cannot be read")
            found += zip(keys[: count.value], values[: count.value], strict=True)
            if over:
                return found
            first = False

    def _program(self, name: str) -> int:
        found: int | None = self._lib.bpf_object__find_program_by_name(self._object, name.encode())
        if not found:
            raise BpfError(f"there is no program {name}")
        return found

    def _map(self, name: str) -> int:
        found: int = self._lib.bpf_object__find_map_fd_by_name(self._object, name.encode())
        if found < 0:
            raise BpfError(f"there is no map {name}")
        return found


def _failed(what: str) -> BpfError:
    number = ctypes.get_errno()
    fix = ""
    if number in (1, 13):
        fix = "It takes CAP_BPF, CAP_PERFMON and a kernel that is not locked down"
    return BpfError(f"{what}: {os.strerror(number)}", fix)


def enumeration(name: str) -> Mapping[int, str]:
    """The names of an enumeration of the running kernel, by their numbers; empty where it has none."""
    lib = _library()
    types = lib.btf__load_vmlinux_btf()
    if not types:
        raise _failed("the types of this kernel cannot be read")
    with contextlib.ExitStack() as stack:
        stack.callback(lib.btf__free, types)
        number = lib.btf__find_by_name_kind(types, name.encode(), ENUM)
        if number < 0:
            return {}
        found = lib.btf__type_by_id(types, number)
        count = found.contents.info & 0xFFFF
        at = ctypes.addressof(found.contents) + ctypes.sizeof(_BtfType)
        listed = (_BtfEnum * count).from_address(at)
        return {one.value: lib.btf__name_by_offset(types, one.name).decode() for one in listed}
    return {}
