"""What a study begins with: values, files of several kinds, and the defaults of Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import baseline as baselines
from netdyno.tuning.bench import Spec
from netdyno.tuning.prepared_bench import BenchRequest, open_bench

from ..conftest import root

SPEC = Spec(workload="connect-burst")
RMEM, PORTS = "net.ipv4.tcp_rmem", "net.ipv4.ip_local_reserved_ports"
WANTED = {f"{RMEM}.min": 4096, f"{RMEM}.default": 65536, f"{RMEM}.max": 1048576, PORTS: "80,443"}
FILES = {
    "90-mine.conf": f"{RMEM} = 4096 65536 1048576\n{PORTS} = 80,443\nvm.swappiness = 1\n",
    "tuned.conf": f"[sysctl]\n{RMEM}=4096 65536 1048576\n{PORTS}=80,443\n",
    "mine.yaml": f"{RMEM}: 4096 65536 1MiB\n{PORTS}: 80,443\n",
}


@root
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_baseline_is_a_file(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(FILES[name])
    found = baselines.baseline([str(file)], SPEC, False, lambda _: True)
    assert found.values == WANTED
    assert [line.split()[2] for line in found.remarks()] == ["vm.swappiness,"] * name.startswith("90")
    file.write_text(FILES[name].replace("443", "444"))
    again = baselines.baseline([str(file)], SPEC, False, lambda _: True)
    assert again.label != found.label, "another study: the file says something else"


@root
@pytest.mark.slow
def test_trials_begin_with_it(tmp_path: Path) -> None:
    """A file, a value of a device and one with a comma, each from its own option."""
    file = tmp_path / "90-mine.conf"
    file.write_text(f"{RMEM} = 4096 65536 1048576\n")
    asked = baselines.written([str(file), f"{PORTS}=80,443", "dev.eth0.txqueuelen=500"])
    request = BenchRequest("connect-burst", params=(f"{RMEM}.max",), baseline=asked)
    with open_bench(request, Interrupts()) as on:
        assert on.starts[f"{RMEM}.max"] == 1048576
        assert on.starts["dev.eth0.txqueuelen"] == 500
        assert f"from {file} [" in on.label and f"{PORTS}=80,443, dev.eth0.txqueuelen=500" in on.label


def test_of_linux_is_what_is_tried() -> None:
    found = baselines.baseline(["linux"], SPEC, False, lambda name: name == "net.core.somaxconn")
    assert (found.values, found.label) == ({"net.core.somaxconn": 4096}, "linux")
    assert baselines.baseline([], SPEC, False, lambda _: True) == baselines.Baseline()


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        (["nothing.conf"], "ND-104-20"),
        (["net.core.somaxcon=1"], "ND-104-40"),
        (["net.core.somaxconn=1", "net.core.somaxconn=2"], "ND-104-07"),
        (["net.core.somaxconn=many"], "ND-104-04"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_made(
    texts: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for text in texts for word in ("--baseline", text)]
    for verb in (["screen", "connect-burst"], ["search", "connect-burst"], ["learn"]):
        assert call(["tune", *verb, *options]) == 104
        assert code in capsys.readouterr().err


def test_a_value_that_no_bench_takes_is_refused() -> None:
    with pytest.raises(Error, match="Did you mean"):
        baselines.check(["net.core.somaxcon=1"])
