"""The manifest of Jobs: each host one Pod with its own certificate, and nothing that Kubernetes refuses by name."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno.errors import Error
from netdyno.fleet import certificates, hosts, kubernetes


def made(
    folder: Path,
    *lines: str,
    name: str = "lab",
    memory: int = 1 << 30,
    image: str = "registry.lab/netdyno:1",
    namespace: str = "load",
    cpu: str = "4",
) -> list[dict[str, Any]]:
    path = folder / "hosts.yaml"
    path.write_text(
        f"format: netdyno-fleet/1\nname: {name}\nhosts:\n" + "".join(f"- {one}\n" for one in lines)
    )
    read = hosts.read(path)
    text = kubernetes.manifest(read, image, namespace, cpu, memory)
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


@pytest.mark.parametrize("version", ["1.25", "1.29", "1.33", "latest"])
def test_kubernetes_own_schema_takes_each_document(tmp_path: Path, version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    wanted = validator.latest_version() if version == "latest" else version
    with_certificates(tmp_path, "a", "b-2")
    documents = made(tmp_path, "{name: a, launcher: address}", "{name: b-2, launcher: address, port: 9000}")
    for one in documents:
        # strictly: a key that the API does not know is a fault
        validator.validate(one, wanted, strict=True)
    service, _, job, *_ = documents
    job["spec"]["template"]["spec"]["restartPolicies"] = "Never"
    service["spec"]["ports"][0]["port"] = "7448"
    for one in (job, service):
        with pytest.raises(validator.ValidationError):
            validator.validate(one, wanted, strict=True)


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("cpu", ("2", "0.5", "500m"), ("", "0", "0m", "two", "-1", "1e3", "2 ", "٢")),
        ("namespace", ("load", "1st", "a" * 63), ("", "Load", "a_b", "-a", "a" * 64, "a\nb")),
        ("image", ("netdyno", "r.lab:5000/n/netdyno:0.1", "n@sha256:ab"), ("", "a b", "-x", "a\nb")),
    ],
)
def test_options_are_what_kubernetes_takes(
    tmp_path: Path, option: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    with_certificates(tmp_path, "a")
    for one in good:
        assert made(tmp_path, "{name: a, launcher: address}", **{option: one})  # type: ignore[arg-type]
    for one in bad:
        with pytest.raises(Error, match=f"--{option}") as e:
            made(tmp_path, "{name: a, launcher: address}", **{option: one})  # type: ignore[arg-type]
        assert e.value.code == "ND-104-04", one


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
