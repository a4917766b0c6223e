"""The manifest of Jobs: each host one Pod with its own certificate, and nothing that Kubernetes refuses by name."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno.errors import Error
from netdyno.fleet import certificates, hosts, kubernetes


def made(folder: Path, *lines: str, name: str = "lab", memory: int = 1 << 30) -> list[dict[str, Any]]:
    path = folder / "hosts.yaml"
    path.write_text(
        f"format: netdyno-fleet/1\nname: {name}\nhosts:\n" + "".join(f"- {one}\n" for one in lines)
    )
    read = hosts.read(path)
    text = kubernetes.manifest(read, "registry.lab/netdyno:1", "load", "4", memory)
    return list(yaml.safe_load_all(text))


def with_certificates(folder: Path, *names: str) -> None:
    pairs = {name: (f"cert of {name}", f"key of {name}") for name in names}
    certificates.write(certificates.Certificates("ca", ("c", "k"), pairs), folder / "certificates")


def test_each_host_is_a_job_with_its_own_certificate(tmp_path: Path) -> None:
    with_certificates(tmp_path, "a", "b-2")
    service, *rest = made(
        tmp_path, "{name: a, launcher: address}", "{name: b-2, launcher: address, port: 9000}"
    )
    assert [one["kind"] for one in rest] == ["Secret", "Job", "Secret", "Job"]
    assert {one["metadata"]["namespace"] for one in [service, *rest]} == {"load"}
    assert service["spec"]["clusterIP"] == "None"
    for name, port, secret, job in (("a", 7448, *rest[:2]), ("b-2", 9000, *rest[2:])):
        data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
        assert data == {"ca.pem": "ca", "agent.pem": f"cert of {name}", "agent.key": f"key of {name}"}
        template = job["spec"]["template"]
        pod = template["spec"]
        # HOST.FLEET.NAMESPACE.svc
        assert (pod["hostname"], pod["subdomain"]) == (name, service["metadata"]["name"])
        assert template["metadata"]["labels"].items() >= service["spec"]["selector"].items()
        assert (pod["restartPolicy"], job["spec"]["backoffLimit"]) == ("Never", 0)
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert volumes["identity"]["secret"]["secretName"] == secret["metadata"]["name"]
        (container,) = pod["containers"]
        assert {one["name"] for one in container["volumeMounts"]} == set(volumes)
        assert container["args"][1] == f"0.0.0.0:{port}"
        wanted = {"cpu": "4", "memory": "1073741824"}
        assert container["resources"] == {"requests": wanted, "limits": wanted}


def test_an_agent_has_some_memory(tmp_path: Path) -> None:
    with_certificates(tmp_path, "a")
    made(tmp_path, "{name: a, launcher: address}", memory=64 << 20)
    with pytest.raises(Error, match="at least 64MiB"):
        made(tmp_path, "{name: a, launcher: address}", memory=(64 << 20) - 1)


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ("{name: A, launcher: address}", "lab", "'A' cannot name the host"),
        ("{name: a_b, launcher: address}", "lab", "'a_b' cannot name the host"),
        ("{name: a, launcher: address}", "Lab", "'Lab' cannot name the fleet"),
        ("{name: a, launcher: address}", "1st", "'1st' cannot name the fleet"),
        ("{name: a}", "lab", "only agents that run by themselves"),
        ("{name: c, launcher: address}", "lab", "has no certificate"),
    ],
)
def test_what_cannot_be_a_job_is_refused(tmp_path: Path, line: str, name: str, words: str) -> None:
    with_certificates(tmp_path, "a", "A", "a_b")
    with pytest.raises(Error) as e:
        made(tmp_path, line, name=name)
    assert e.value.code == "ND-104-91"
    assert words in e.value.what
