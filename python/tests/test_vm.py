"""Virtual machines, as far as none is started: what they are made of, what they are told, what they say."""

from __future__ import annotations

import io
import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netdyno.errors import Error
from netdyno.system.interrupt import Interrupts
from netdyno.system.process import Process
from netdyno.system.vm import commands, initramfs, inside, kernel, kvm, machine, scripts, setup
from netdyno.system.vm.kernel import Kernel
from netdyno.system.vm.machine import Session
from netdyno.system.vm.scripts import CONTROL, ERR, OUT
from netdyno.system.vm.setup import MissingRequirement, Setup
from netdyno.tuning import doctor

DEP = """\
kernel/fs/fuse/virtiofs.ko.xz: kernel/fs/fuse/fuse.ko.xz kernel/drivers/virtio/virtio.ko.xz
kernel/fs/fuse/fuse.ko.xz:
kernel/fs/overlayfs/overlay.ko.xz:
kernel/drivers/virtio/virtio.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz
kernel/drivers/virtio/virtio_ring.ko.xz:
kernel/drivers/char/virtio_console.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/net/tun.ko.xz:
"""


def put(
    root: Path, release: str, dep: str = DEP, builtin: str = "kernel/drivers/virtio/virtio_pci.ko\n"
) -> None:
    """A kernel with its modules below a root."""
    folder = root / "lib/modules" / release
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text(dep)
    (folder / "modules.builtin").write_text(builtin)
    for line in dep.splitlines():
        path = folder / line.partition(":")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(path.name.encode()))
    (root / "boot").mkdir(exist_ok=True)
    (root / "boot" / f"vmlinuz-{release}").touch()


def releases(*places: Path, running: str = "6.12.1") -> list[str]:
    root, *cache = places
    return [one.release for one in kernel.candidates(cache, root, running)]


# ---- KVM


def test_kvm_is_there_only_where_the_processor_has_it(tmp_path: Path) -> None:
    assert kvm.trouble(tmp_path) == "there is no /dev/kvm"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kvm").touch()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nflags\t\t: fpu sse2 hypervisor\n")
    assert kvm.trouble(tmp_path) == "the processor has neither vmx nor svm"
    # a plain file makes no virtual machine
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nflags\t\t: fpu vmx sse2\n")
    assert kvm.trouble(tmp_path).startswith("/dev/kvm: ")


# ---- kernels


def test_the_running_kernel_comes_first_then_those_put_aside_then_others(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    assert releases(root, cache) == []
    put(root, "6.9.0")
    put(root, "6.10.0")
    put(cache, "6.1.0")
    assert releases(root, cache) == ["6.1.0", "6.10.0", "6.9.0"]
    put(root, "6.12.1")
    assert releases(root, cache) == ["6.12.1", "6.1.0", "6.10.0", "6.9.0"]
    (root / "boot/vmlinuz-6.11.0").touch()
    assert "6.11.0" not in releases(root, cache), "it has no modules"


def test_a_kernel_without_what_a_root_takes_is_passed_over_and_said(tmp_path: Path) -> None:
    put(tmp_path, "6.12.1", dep="".join(line for line in DEP.splitlines(True) if "virtiofs" not in line))
    put(tmp_path, "6.1.0")
    chosen, why = kernel.choose(kernel.candidates([], tmp_path, "6.12.1"))
    assert chosen
    assert chosen.release == "6.1.0"
    assert why == [f"{tmp_path}/boot/vmlinuz-6.12.1: it has no virtiofs"]
    (chosen.modules / "modules.dep").unlink()
    chosen, why = kernel.choose(kernel.candidates([], tmp_path, "6.12.1"))
    assert chosen is None
    assert "modules.dep cannot be read" in why[1]


def test_modules_are_loaded_after_those_that_they_need(tmp_path: Path) -> None:
    put(tmp_path, "6.12.1")
    (one,) = kernel.candidates([], tmp_path, "6.12.1")
    names = [kernel.module(path.name) for path in one.early]
    assert names == ["virtio_ring", "virtio", "virtio_console", "fuse", "virtiofs", "overlay", "tun"]


# ---- what is booted


def entries(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """What is in a cpio archive (newc): path, mode, content."""
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        start = at + 110
        name = data[start : start + fields[11] - 1].decode()
        start += fields[11] + -(start + fields[11]) % 4
        if name == "TRAILER!!!":
            return
        yield name, fields[1], data[start : start + fields[6]]
        at = start + fields[6] + -fields[6] % 4


def test_the_first_file_system_has_busybox_modules_and_scripts(tmp_path: Path) -> None:
    put(tmp_path, "6.12.1")
    (one,) = kernel.candidates([], tmp_path, "6.12.1")
    busybox = Path("/bin/sh")
    found = {
        name: (mode, data)
        for name, mode, data in entries(initramfs.build(one, busybox, {"init": "#!/bin/busybox sh\n"}))
    }
    assert found["init"] == (0o100755, b"#!/bin/busybox sh\n")
    assert found["bin/busybox"] == (0o100755, busybox.read_bytes())
    assert found["modules/virtiofs.ko"] == (0o100644, b"virtiofs.ko.xz"), "not compressed any more"
    order = found["modules/order"][1].decode().split()
    assert order[0] == "virtio_ring.ko"
    assert all(f"modules/{name}" in found for name in order)
    # folders stand before what is in them
    names = list(found)
    assert all(names.index(str(Path(n).parent)) < names.index(n) for n in names if "/" in n)
    for library in initramfs.libraries(busybox):
        assert str(library).lstrip("/") in found


def test_a_large_program_goes_without_what_a_debugger_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path(sys.executable).read_bytes())
    with program.open("ab") as file:
        file.write(bytes(1 << 20))
    monkeypatch.setattr(initramfs, "LARGE", 1 << 20)
    monkeypatch.setattr(initramfs.shutil, "which", lambda name: None)
    assert initramfs.stripped(program) == program.read_bytes()
    monkeypatch.undo()
    if not shutil.which("strip"):
        pytest.skip("strip is not installed")
    assert initramfs.stripped(program) == program.read_bytes(), "a small one is left as it is"
    monkeypatch.setattr(initramfs, "LARGE", 1 << 20)
    assert len(initramfs.stripped(program)) < program.stat().st_size


def test_scripts_take_any_name_for_what_it_is(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    odd = f'it\'s $(touch {marker}) `x` "y"'
    agent = scripts.agent(["prog", odd], Path("/a b/$c"), {"PATH": "/bin", "ODD": odd})
    init = scripts.init("6.1.0", Path("/k it/lib"), Path("/bin/busybox"), Path("/s'h"))
    for text in (agent, init):
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    line = next(line for line in agent.splitlines() if line.startswith("env -i "))
    shown = line.replace("env -i", "printf '%s|'").partition(" </dev/null")[0]
    done = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout == f"PATH=/bin|ODD={odd}|prog|{odd}|"
    assert not marker.exists()


MADE = Setup(
    Path("/usr/bin/qemu-system-x86_64"),
    Path("/usr/lib/qemu/virtiofsd"),
    Path("/usr/bin/busybox"),
    Kernel("6.1.0", Path("/boot/vmlinuz-6.1.0"), Path("/lib/modules/6.1.0")),
    ("tcg",),
    "there is no /dev/kvm",
    4,
    3 << 30,
)


def test_qemu_is_told_of_kernel_memory_shares_and_ports_and_of_no_network() -> None:
    sockets = {name: Path("/run/x") / name for name in ("root", "share", *commands.PORTS)}
    words = commands.qemu(MADE, "tcg", Path("/run/x"), sockets)
    told = " ".join(words)
    for part in (
        "-accel tcg,thread=single", "-smp 4", "-m 3072M", "-nic none", "-no-reboot",
        "memory-backend-memfd,id=memory,size=3072M,share=on", "-kernel /boot/vmlinuz-6.1.0",
        "path=/run/x/root -device vhost-user-fs-pci,tag=root,chardev=c0",
        f"-device virtserialport,name={OUT},", "netdyno.vm=tcg",
    ):  # fmt: skip
        assert part in told
    assert "-accel kvm -cpu host" in " ".join(commands.qemu(MADE, "kvm", Path("/run/x"), sockets))


def test_either_virtiofsd_is_told_in_its_own_words() -> None:
    old = commands.share(Path("/usr/lib/qemu/virtiofsd"), Path("/"), Path("/run/s"), "always")
    assert old[1:] == ["--socket-path=/run/s", "-o", "source=/,cache=always,sandbox=chroot"]
    new = commands.share(Path("/usr/libexec/virtiofsd"), Path("/"), Path("/run/s"), "always")
    assert new[1:] == [
        "--socket-path",
        "/run/s",
        "--shared-dir",
        "/",
        "--cache",
        "always",
        "--sandbox",
        "chroot",
    ]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mount namespaces")
def test_a_root_that_is_shared_cannot_be_written_to(tmp_path: Path) -> None:
    kept, other = tmp_path / "kept", tmp_path / "other"
    kept.mkdir()
    other.mkdir()
    tried = ["sh", "-c", f"touch {kept}/a /run/nd-a; touch {other}/a || touch {kept}/refused"]
    command = commands.private(tried, kept, Path("/"))
    subprocess.run(command, check=True, capture_output=True)
    assert sorted(path.name for path in kept.iterdir()) == ["a", "refused"]
    assert not list(other.iterdir())
    assert not Path("/run/nd-a").exists(), "/run is its own"


def test_a_process_knows_that_it_is_in_one(tmp_path: Path) -> None:
    line = tmp_path / "cmdline"
    assert inside.accelerator(line) is None
    line.write_text("console=ttyS0 netdyno.vm=tcg\n")
    assert inside.accelerator(line) == "tcg"
    line.write_text("console=ttyS0 other.netdyno.vm=tcg\n")
    assert inside.accelerator(line) is None


# ---- what is there


def test_memory_is_most_of_what_is_free_and_no_more_than_is_of_use() -> None:
    assert setup.size(64 << 30) == 5 << 30
    assert setup.size((4 << 30) + 4097) == 3 << 30


@pytest.mark.parametrize(
    ("lacking", "package"), [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox")]
)
def test_a_program_that_is_missing_is_told_with_its_package(
    lacking: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        setup, "_program", lambda name, places: None if name == lacking else Path("/bin/true")
    )
    found = setup.find()
    assert found == MissingRequirement(f"{lacking} is not installed", f"sudo apt install {package}")
    monkeypatch.setattr(doctor.setup, "find", lambda: found)
    told, _ = doctor.checks()
    assert (told.state, told.fix) == ("optional", f"sudo apt install {package}")


def test_doctor_tells_of_kernel_and_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.setup, "find", lambda: MADE)
    told, _ = doctor.checks()
    assert told.state == "ok"
    assert told.found.startswith("kernel 6.1.0, TCG, no KVM: there is no /dev/kvm")
    monkeypatch.setattr(doctor.setup, "find", lambda: replace(MADE, accelerators=("kvm", "tcg"), no_kvm=""))
    told, _ = doctor.checks()
    assert told.found.startswith("kernel 6.1.0, KVM;")


def test_without_a_kernel_it_is_told_where_one_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(setup, "_program", lambda name, places: Path("/bin/true"))
    monkeypatch.setattr(setup.kernel, "candidates", lambda cache: iter(()))
    found = setup.find()
    assert isinstance(found, MissingRequirement)
    assert found.why == "no kernel to boot: there is no vmlinuz in /boot with its modules in /lib/modules"


# ---- a session


class Fake:
    """Stands in for QEMU's process."""

    def __init__(self, log: Path) -> None:
        self.log = log

    status: int | None = None

    def exited(self) -> int | None:
        return self.status

    ending = Process.ending

    def wait(self, timeout: float) -> int | None:
        return None


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Session, dict[str, socket.socket]]]:
    pairs = {name: socket.socketpair() for name in (OUT, ERR, CONTROL)}
    (tmp_path / "qemu.log").write_text("qemu: a word\n")
    process = cast(Process, Fake(tmp_path / "qemu.log"))
    session = Session(process, {name: pair[0] for name, pair in pairs.items()}, tmp_path / "console.log")
    yield session, {name: pair[1] for name, pair in pairs.items()}
    for pair in pairs.values():
        for one in pair:
            one.close()


Ends = tuple[Session, dict[str, socket.socket]]


def test_what_is_printed_comes_whole_and_apart_with_the_exit_status(ends: Ends) -> None:
    session, far = ends
    out, err = io.BytesIO(), io.BytesIO()
    far[CONTROL].sendall(b"up\nalive\n")
    session.until_up(60, Interrupts())
    far[CONTROL].sendall(b"alive\nexit 9")
    far[OUT].sendall("half a é"[:-1].encode())

    def rest() -> None:
        far[OUT].sendall("é\n".encode() + b"\0")
        far[ERR].sendall(b"a note\n\0")
        far[CONTROL].sendall(b"0\n")

    later = threading.Timer(0.1, rest)
    later.start()
    assert session.listen(out.write, err.write, Interrupts()) == 90
    assert (out.getvalue().decode(), err.getvalue()) == ("half a é\n", b"a note\n")
    later.join()


def test_an_interrupt_is_passed_on(ends: Ends) -> None:
    session, far = ends
    interrupts = Interrupts()
    far[CONTROL].settimeout(60)

    def guest() -> None:
        interrupts.count += 1
        assert far[CONTROL].recv(64) == b"stop\n"
        for name in (OUT, ERR):
            far[name].sendall(b"\0")
        far[CONTROL].sendall(b"exit 105\n")

    other = threading.Timer(0.1, guest)
    other.start()
    assert session.listen(io.BytesIO().write, io.BytesIO().write, interrupts) == 105
    other.join()


def test_one_that_ends_or_falls_silent_is_lost(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    session, far = ends
    monkeypatch.setattr(machine, "SILENCE", 0.3)
    with pytest.raises(Error, match="no sign of life") as silent:
        session.listen(io.BytesIO().write, io.BytesIO().write, Interrupts())
    assert silent.value.code == "ND-91-28"
    far[CONTROL].close()
    cast(Fake, session.process).status = -signal.SIGSEGV
    with pytest.raises(Error, match=r"lost: QEMU ended \(SIGSEGV\): qemu: a word"):
        session.listen(io.BytesIO().write, io.BytesIO().write, Interrupts())
    cast(Fake, session.process).status = -(signal.SIGRTMIN + 3)
    with pytest.raises(Error, match=r"lost: QEMU ended \(signal 37\): qemu: a word"):
        session.listen(io.BytesIO().write, io.BytesIO().write, Interrupts())


def test_one_that_does_not_come_up_is_no_virtual_machine(ends: Ends) -> None:
    session, _ = ends
    with pytest.raises(Error, match=r"not up within 0.3 s: qemu: a word") as late:
        session.until_up(0.3, Interrupts())
    assert late.value.code == "ND-92-44"
    cast(Fake, session.process).status = 1
    with pytest.raises(Error, match=r"QEMU ended \(status 1\): qemu: a word"):
        session.until_up(60, Interrupts())


def test_where_kvm_does_not_boot_it_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    job = machine.Job(["x"], Path("/"), Path("/"), {})
    tried: list[str] = []

    def start(self: Any, stack: Any, way: str) -> Any:
        def up(seconds: float, interrupts: Interrupts) -> None:
            if way == "kvm":
                raise Error("ND-92-44", "it ended: no KVM")

        tried.append(way)
        return SimpleNamespace(until_up=up, listen=lambda *_: 7)

    monkeypatch.setattr(machine.VirtualMachine, "_start", start)
    both = replace(MADE, accelerators=("kvm", "tcg"))
    said: list[str] = []
    one = machine.VirtualMachine(both, job)
    assert one.run(io.BytesIO().write, io.BytesIO().write, Interrupts(), said.append) == 7
    assert tried == ["kvm", "tcg"]
    assert said[0] == "no virtual machine by KVM: it ended: no KVM"
