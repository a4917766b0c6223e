"""The exception path: what a configuration's `host` becomes in the graph, and what is refused."""

from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.nat import graph, host
from netdyno.nat.host import Kernel

from .shared import machine, nat

TAP = {"interface": "nat-in", "driver": "tap", "rate": "1k/s"}


def made(**changes: Any) -> dict[str, Any]:
    settings = nat(**changes)
    return graph.document(settings, graph.layout(settings, machine(1, 4)))


def faults(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(Error) as caught:
        nat(**changes)
    return [(one["at"], one["what"]) for one in caught.value.all or [caught.value.as_dict()]]


def test_frames_go_to_the_kernel_and_back_within_the_rate() -> None:
    found = made(inside__host=TAP)
    assert found["ports"]["in-kernel"] == {"device": "tap:nat-in", "optional": True}
    assert "host" not in found["ports"]["inside"]
    asks = {"kind": "nat-host", "port": "inside", "on_link": ["10.0.0.0/24"], "also": ["203.0.113.2"]}
    element = dict(found["elements"]["in-host"])
    assert {"10.0.0.0", "10.0.0.255"} <= {*element.pop("sources")["non_host_addresses"]}
    assert element == asks | {"host": True}
    assert "host" not in found["elements"]["out-host"]
    limit = {"kind": "police", "limit": {"packets": "1k/s"}}
    assert found["elements"]["in-to-kernel"] == limit
    assert [edge for edge in found["edges"] if "kernel" in edge] == [
        "in-host.host -> in-to-kernel -> in-kernel.tx",
        "in-host.resolution -> in-resolution -> in-kernel.tx",
        "in-kernel.rx -> in-from-kernel -> inside.tx",
    ]
    (worker,) = found["placement"]
    placed = set(worker["elements"])
    assert {*found["elements"], "in-kernel.rx", "in-kernel.tx"} <= placed


@pytest.mark.parametrize("execution", ["run-to-completion", "pipeline", "core-set-1"])
def test_everything_is_placed_once_in_every_model(execution: str) -> None:
    found = made(execution=execution, inside__host="nat-in", outside__host="nat-out")
    placed = [name for worker in found["placement"] for name in worker["elements"]]
    queues = [f"{port}.{way}" for port in found["ports"] for way in ("rx", "tx")]
    assert sorted(placed) == sorted([*found["elements"], *queues])


def test_the_kernel_sees_the_boxs_own_vlans_without_their_tags() -> None:
    found = made(inside__host=TAP, inside__vlan=[200, 100])
    assert found["elements"]["in-untag"] == {"kind": "vlan", "pop": 2}
    assert found["elements"]["in-tag"] == {"kind": "vlan", "push": [{"id": 200}, {"id": 100}]}
    assert "in-host.host -> in-to-kernel -> in-untag -> in-kernel.tx" in found["edges"]
    assert "in-kernel.rx -> in-from-kernel -> in-tag -> inside.tx" in found["edges"]


def test_vhost_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "VHOST", str(tmp_path / "vhost-net"))
    assert Kernel("n").device == "tap:n"
    (tmp_path / "vhost-net").touch()
    assert Kernel("n").device.startswith(f"virtio:{tmp_path}/vhost-net,iface=n,")
    assert Kernel("n", driver="tap").device == "tap:n"
    # that of a NAT which runs is what it was when that began
    for driver, device in (
        ("net_tap", "tap:n"),
        ("net_virtio_user", f"virtio:{tmp_path}/vhost-net,iface=n,"),
    ):
        shape = {"ports": [{"name": "inside", "driver": "net_null"}, {"name": "in-kernel", "driver": driver}]}
        assert host.as_begun("inside", Kernel("n"), shape).device.startswith(device)
        assert host.as_begun("inside", Kernel("n", driver="tap"), shape).device == "tap:n"
        assert host.as_begun("outside", Kernel("n"), shape) == Kernel("n")


@pytest.mark.parametrize(
    ("wrong", "at", "words"),
    [
        ({"inside__host": "a b"}, "inside.host.interface", "cannot name an interface"),
        ({"inside__host": "x" * 16}, "inside.host.interface", "cannot name an interface"),
        ({"inside__host": TAP | {"rate": "much"}}, "inside.host.rate", "10k/s"),
        ({"inside__host": TAP | {"rate": "0.5/s"}}, "inside.host.rate", "less than"),
        ({"inside__host": TAP | {"driver": "kni"}}, "inside.host.driver", "tap"),
        ({"inside__host": "n", "outside__host": "n"}, "outside.host", "inside.host"),
        ({"inside__device": "af_packet:in0", "outside__host": "in0"}, "outside.host", "that of inside"),
    ],
)
def test_what_cannot_be_an_interface_is_refused(wrong: dict[str, Any], at: str, words: str) -> None:
    ((place, what),) = faults(**wrong)
    assert place == f"cgn.yaml: {at}"
    assert words in what


def test_an_interface_that_is_there_is_somebody_elses() -> None:
    with pytest.raises(Error, match="lo is there already") as caught:
        host.free("inside", Kernel("lo"))
    assert (caught.value.code, caught.value.at) == (host.CODE, "inside.host")
    host.free("inside", Kernel("nd-not-there"))


@pytest.mark.parametrize(
    ("of_graph", "of_file"),
    [
        ("ports.in-kernel.device", "inside.host"),
        ("elements.out-tag.push", "outside.host"),
        ("elements.in-to-kernel.limit.packets", "inside.host.rate"),
        ("elements.out-host.host", "outside.host"),
    ],
)
def test_faults_of_the_graph_are_told_by_their_key(of_graph: str, of_file: str) -> None:
    assert graph.config_path(of_graph) == of_file


def test_what_the_host_has_is_told() -> None:
    sides = {
        "inside": (Kernel("nat-in"), IPv4Interface("10.0.0.254/24")),
        "outside": (Kernel("nat-out"), IPv4Interface("203.0.113.2/28")),
    }
    assert list(host.describe(sides)) == [
        "nat-in: 10.0.0.254/24, the host's interface on inside",
        "nat-out: 203.0.113.2/28, the host's interface on outside",
    ]


def test_a_device_that_yaml_reads_as_nothing_is_to_be_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    port = "ip: 10.0.0.254/24, device: null"
    rest = '{ip: 203.0.113.2/24, device: "null", gateway: 203.0.113.1}'
    head = "format: netdyno-nat/1\nname: x\npool: [203.0.113.16/28]\n"
    file.write_text(f"{head}inside: {{{port}}}\noutside: {rest}\n")
    assert app.call(["nat", "check", str(file)]) == 104
    said = capsys.readouterr().err
    assert "inside.device" in said and 'with quotes, "null"' in said
    file.write_text("ports: {a: {device: null}}\nelements: {}\nedges: []\n")
    assert app.call(["graph", "run", str(file)]) == 104
    said = capsys.readouterr().err
    assert "ports.a.device" in said and 'with quotes, "null"' in said
