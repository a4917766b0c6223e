"""Files of sysctl.d and profiles of TuneD, in `tune apply` and `tune compare`; settings of which nothing can be set."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.tuning import benches, export, service, sysctl_file
from netdyno.tuning.registry import registry

from ..conftest import root
from .test_benches import THERE

SPACE = f"ndt-conf-{os.getpid()}"
TEXT = """
# comment
; another
net.core.somaxconn = 1024
net.core.somaxconn=8192
net/ipv4/tcp_rmem = 4096 131072 \\
   67108864
-net.core.rmem_max = 1000000
-net/ipv4/conf/eth0.100/rp_filter = 1
net.ipv4.conf.*.forwarding = 1
-net.ipv4.conf.lo.forwarding
vm.swappiness=10
"""


def file(folder: Path, text: str, name: str = "90-mine.conf") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_it_is_read_as_sysctl_reads_it(tmp_path: Path) -> None:
    found = sysctl_file.read(file(tmp_path, TEXT))
    assert found.values == {
        "net.core.somaxconn": "8192", "net.ipv4.tcp_rmem": "4096 131072  67108864", "net.core.rmem_max": "1000000",
        "net.ipv4.conf.eth0/100.rp_filter": "1", "vm.swappiness": "10",
    }  # fmt: skip
    assert found.optional == {"net.core.rmem_max", "net.ipv4.conf.eth0/100.rp_filter"}
    assert [*found.left_out] == ["net.ipv4.conf.*.forwarding", "net.ipv4.conf.lo.forwarding"]
    with pytest.raises(Error, match=r"ND-104-22.*(?s:line 1)"):
        sysctl_file.read(file(tmp_path, "net.core.somaxconn 5"))


def test_of_a_profile_of_tuned_only_its_sysctls_count(tmp_path: Path) -> None:
    text = (
        "[main]\ninclude=throughput-performance\n[cpu]\ngovernor=performance\n[sysctl]\n"
        "net.core.somaxconn=>2048\nnet.ipv4.tcp_fin_timeout=20\nnet.core.rmem_max=${top}\n[vm]\nx=1\n"
    )
    path = file(tmp_path, text, "mine/tuned.conf")
    for name in (path, path.parent):
        found = service.written(str(name), registry())
        assert found.values == {"net.ipv4.tcp_fin_timeout": "20"}
        assert len(found.left_out) == 3
    with pytest.raises(Error, match="ND-104-22"):
        service.written(str(file(tmp_path, "[cpu]\ngovernor=performance\n")), registry())
    with pytest.raises(Error, match="none of its 1"):
        service.written(str(file(tmp_path, "vm.swappiness=1\n")), registry())


def test_what_is_exported_is_read_back(tmp_path: Path) -> None:
    setting = {"net.core.somaxconn": 8192, "net.ipv4.tcp_congestion_control": "bbr"}
    made = export.parameters(registry(), setting, lambda path: {})
    of = export.Provenance("mine", "wrk", "here", "today", ("rps better",))
    for form in ("sysctl", "tuned"):
        path = file(tmp_path, export.text(made, of, form), f"{form}.conf")
        assert benches.setting(str(path)) == setting


def test_it_is_compared_without_what_it_may_lack(tmp_path: Path) -> None:
    path = file(tmp_path, "net.core.somaxconn=70000\n-net.core.rmem_max=100000\nvm.swappiness=1\n")
    chosen = benches.choose(str(path), THERE, allow_global=False)
    assert chosen.setting == {"net.core.somaxconn": 70000}
    assert chosen.left_out.keys() == {"net.core.rmem_max", "vm.swappiness"}
    assert "outside 0 to 10" in chosen.outside[0]
    strict = file(tmp_path, "net.core.rmem_default=100000\n")
    with pytest.raises(Error, match="ND-104-43"):
        benches.choose(str(strict), THERE, allow_global=False)


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    yield SPACE
    subprocess.run(["ip", "netns", "del", SPACE], check=True)


@root
def test_it_is_applied_from_the_folder_one_is_in(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    file(tmp_path, TEXT)
    assert app.call(["tune", "apply", "90-mine.conf", "--where", space, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "net.core.somaxconn" in shown.out and "net.ipv4.tcp_rmem.max" in shown.out
    assert "left out: vm.swappiness: netdyno does not tune it" in shown.err
    assert app.call(["tune", "apply", "90-mine.conf", "--where", space, "--for", "1ms"]) == 0


@root
def test_a_setting_of_which_nothing_can_be_set_is_refused(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    path = file(tmp_path, "-net.core.rmem_max=100000\n-net.core.wmem_max=100000\n")
    assert app.call(["tune", "apply", str(path), "--where", space]) == 104
    assert "all 2 parameters hold for the whole machine" in capsys.readouterr().err
    assert app.call(["tune", "apply", "--set", "dev.*.txqueuelen=5", "--where", space]) == 104
    assert "no device but loopback" in capsys.readouterr().err
    same = ["tune", "apply", "--where", space, "--set"]
    assert app.call([*same, "net.core.somaxconn=4096"]) == 0
    assert "has its value already" in capsys.readouterr().out
