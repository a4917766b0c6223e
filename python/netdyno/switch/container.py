"""Client and server from a user's own container image, or from the folder of its files.

Programs of the workload run in the namespaces of client and server, with the files of the image. A folder is
the root of a mount namespace; an image runs by Podman, which has no daemon and keeps the network namespace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS, Workload
from netdyno.system.process import find

AT = "--image"
ROOT = """\
r=$1
shift
for d in dev proc; do
    [ ! -d "$r/$d" ] || mount --rbind "/$d" "$r/$d" || exit
done
exec chroot "$r" "$@"
"""
"""Shell of a mount namespace that makes a folder its root, with devices and processes."""


def check(kind: type[Workload], image: str) -> None:
    """Raises if a workload does not run in containers, or the image cannot be run here."""
    if not kind.in_containers:
        there = " or ".join(name for name, one in WORKLOADS.items() if one.in_containers)
        what = f"the workload {kind.name} does not run in containers"
        raise Error("ND-104-24", what, at="--endpoints", fix=f"Use --workload {there}")
    if not image:
        what = "no image is named for client and server"
        fix = "Name one, or the folder of its files: --image localhost/mine"
        raise Error("ND-104-07", what, at=AT, fix=fix)
    if image.startswith("-") or any(one.isspace() or not one.isprintable() for one in image):
        raise Error("ND-104-04", f"{image[:80]!r} is no image and no folder", at=AT)
    launcher(image)


def launcher(image: str) -> list[str]:
    """What goes before a program that runs from the image. Raises Error if it cannot."""
    if image.startswith(("/", "./", "../")):
        root = Path(image).resolve()
        if not root.is_dir():
            fix = "`podman export` or `docker export` writes the files of a container"
            raise Error("ND-92-44", f"{image} is no folder", at=AT, fix=fix)
        return [find("unshare", "util-linux"), "--mount", "sh", "-c", ROOT, "sh", str(root)]
    if not shutil.which("podman"):
        also = ": Docker's daemon would start it in a network of its own" if shutil.which("docker") else ""
        fix = "sudo apt install podman; or give the folder of its files, which `docker export` writes"
        raise Error("ND-92-44", f"podman is missing, which runs the image {image}{also}", at=AT, fix=fix)
    # back to the machine's mounts, with its control groups, which a namespace of a host does not have
    mounts = f"--mount=/proc/{os.getpid()}/ns/mnt"
    return [
        find("nsenter", "util-linux"), mounts, find("podman", "podman"), "run", "--rm", "--network=host",
        "--cgroups=disabled", image,
    ]  # fmt: skip


def launchers(endpoints: str, image: str) -> Mapping[str, list[str]]:
    """Of client and server; none: they are no containers."""
    if endpoints != "container":
        return {}
    return dict.fromkeys(("client", "server"), launcher(image))
