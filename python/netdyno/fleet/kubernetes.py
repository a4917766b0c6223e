"""Agents as Jobs of Kubernetes: it places and supervises them, and is not in the way of measurement.

Each host of the fleet is a Job of one Pod with a name of its own (`HOST.FLEET.NAMESPACE.svc`), under a
headless Service, and a Secret with its certificate. A Pod that ended is not started again: nothing runs
unseen, and what opened it opens nothing any more.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import yaml

from netdyno import reading
from netdyno.core.mtls import CA
from netdyno.errors import Error
from netdyno.fleet import hosts
from netdyno.fleet.address import PORT
from netdyno.fleet.certificates import AGENT_CERT, AGENT_KEY
from netdyno.fleet.hosts import HostsFile, HostSpec

IDENTITY, RUNTIME = "/etc/netdyno-agent", "/run/netdyno"
LEAST_MEMORY = 64 << 20
"""In bytes: fewer are a slip, such as 512 for 512MiB."""
USER = 65532
"""Not root: raw sockets, DPDK ports and namespaces are out of reach of these agents."""
LABEL = "netdyno.fleet"
_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
"""What a name in DNS and of a Service may be (RFC 1035), as long as names of fleets and hosts are."""

_NAMESPACE = re.compile(r"(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_CPU = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?|[0-9]{1,7}m", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}")


def manifest(read: HostsFile, image: str, namespace: str, cpu: str, memory: int) -> str:
    """The manifest as YAML; `memory` in bytes.

    Raises `ND-104-91` where a host or a name does not fit, or has no certificate, `ND-104-04` and `ND-104-05`
    for options that Kubernetes would refuse, and a memory that is too small.
    """
    _check(image, namespace, cpu)
    if memory < LEAST_MEMORY:
        what, fix = f"{memory:,} bytes are too few for an agent", f"Use at least {LEAST_MEMORY >> 20}MiB"
        raise Error("ND-104-05", what, at="--memory", fix=fix)
    named(read.name, "the fleet", "Give the file another `name:`")
    for host in read.hosts:
        if host.launcher != "address":
            fix = "Write `launcher: address` for each host"
            raise Error(hosts.WRONG, "only agents that run by themselves can be Jobs", at=host.name, fix=fix)
        named(host.name, "the host", "Use small letters, digits and -, with a letter first")
    documents = [service(read.name, namespace)]
    for host in read.hosts:
        documents += [secret(read.name, host, namespace), job(read.name, host, image, namespace, cpu, memory)]
    return yaml.safe_dump_all(documents, sort_keys=False)


def _check(image: str, namespace: str, cpu: str) -> None:
    if not _NAMESPACE.fullmatch(namespace):
        fix = "Use small letters, digits and -, at most 63"
        raise Error("ND-104-04", f"{namespace!r} is no namespace of Kubernetes", at="--namespace", fix=fix)
    if not _CPU.fullmatch(cpu) or not float(cpu.removesuffix("m")):
        fix = "Write it like 2, 0.5 or 500m"
        raise Error("ND-104-04", f"{cpu!r} is no number of CPUs", at="--cpu", fix=fix)
    if not _IMAGE.fullmatch(image):
        fix = "Write it like registry.lab/netdyno:0.1"
        raise Error("ND-104-04", f"{image!r} is no reference of an image", at="--image", fix=fix)


def named(name: str, what: str, fix: str) -> None:
    """Refuse a name that Kubernetes does not take."""
    if not _LABEL.fullmatch(name):
        raise Error(hosts.WRONG, f"{name!r} cannot name {what} in Kubernetes", at=name, fix=fix)


def _about(fleet: str, name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": {LABEL: fleet}}


def service(fleet: str, namespace: str) -> dict[str, Any]:
    """Gives each Pod its name; also one that is not ready yet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _about(fleet, fleet, namespace),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL: fleet},
            "ports": [{"name": "mtls", "port": PORT, "targetPort": "mtls"}],
        },
    }


def secret(fleet: str, host: HostSpec, namespace: str) -> dict[str, Any]:
    """The agent's certificate, its key, and the CA of who may call it."""
    folder = Path(host.certificates or hosts.CERTIFICATES) / host.name
    try:
        texts = {name: reading.text(folder / name) for name in (CA, AGENT_CERT, AGENT_KEY)}
    except Error as e:
        fix = "Make it with `netdyno fleet certificates`"
        raise Error(hosts.WRONG, f"the host has no certificate: {e.what}", at=str(folder), fix=fix) from e
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    about = _about(fleet, f"{fleet}-{host.name}", namespace)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "type": "Opaque", "data": data}


def job(fleet: str, host: HostSpec, image: str, namespace: str, cpu: str, memory: int) -> dict[str, Any]:
    """One agent, started once."""
    port = host.port or PORT
    resources = {"cpu": cpu, "memory": str(memory)}
    container = {
        "name": "agent",
        "image": image,
        "command": ["netdynod", "--socket", f"{RUNTIME}/core.sock", "--log-json"],
        "args": ["--mtls", f"0.0.0.0:{port}", "--identity", IDENTITY],
        "ports": [{"name": "mtls", "containerPort": port}],
        # requests and limits alike: the cores are its own where the kubelet pins them
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "identity", "mountPath": IDENTITY, "readOnly": True},
            {"name": "runtime", "mountPath": RUNTIME},
        ],
    }
    pod = {
        "hostname": host.name,
        "subdomain": fleet,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # one node each, as far as there are nodes
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {LABEL: fleet}},
            }
        ],
        "containers": [container],
        "volumes": [
            {"name": "identity", "secret": {"secretName": f"{fleet}-{host.name}", "defaultMode": 0o440}},
            {"name": "runtime", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _about(fleet, f"{fleet}-{host.name}", namespace),
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "template": {"metadata": {"labels": {LABEL: fleet}}, "spec": pod},
        },
    }
