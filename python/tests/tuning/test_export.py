"""A proven setting as files of sysctl.d, TuneD and Ansible; and conflicts of a kept one with other files."""

from __future__ import annotations

import json
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno import quantities
from netdyno.cli.app import call
from netdyno.report import units
from netdyno.tuning.owners import conflicts

SOMAXCONN, RMEM = "net.core.somaxconn", "net.ipv4.tcp_rmem.max"


def study(path: Path, verdict: str = "better", **setting: Any) -> Path:
    effect = {"change": 0.42, "interval": [0.31, 0.55], "absolute": False}
    metric = {"metric": {"name": "rps"}, "verdict": verdict, "effect": effect}
    document = {
        "format": 1, "kind": "compare", "name": "mine", "bench": "ab -n 1\nsecond line [abc]", "trials": [],
        "machine": {"kernel": "6.1.0", "cpu": "Some CPU", "cores": 2}, "finished": "2026-11-28T19:33:47+00:00",
        "plan": {"level": 0.05},
        "result": {"metrics": [metric], "b": {"setting": setting}, "pairs": 12, "level": 0.05, "mechanism": "observed"},
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def exported(file: Path, form: str, capfd: pytest.CaptureFixture[str], *more: str) -> str:
    assert call(["tune", "export", str(file), "--format", form, *more]) == 0
    return capfd.readouterr().out


def test_each_format_has_the_setting_and_where_it_comes_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = study(tmp_path / "mine.json", **{SOMAXCONN: 8192, RMEM: 1 << 26, "dev.eth0.txqueuelen": 5000})
    low, middle, _ = Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()
    expected = {SOMAXCONN: "8192", "net.ipv4.tcp_rmem": f"{low} {middle} {1 << 26}"}
    for form in ("sysctl", "tuned", "ansible"):
        text = exported(file, form, capfd)
        assert "# netdyno study mine, proven against the baseline\n" in text
        assert "# rps better: +42.0%, interval +31.0% to +55.0%, 12 pairs, level 0.05 in all\n" in text
        assert "# measured with: ab -n 1 second line [abc]\n" in text
        assert "# measured on: Linux 6.1.0, Some CPU, 2 cores, 2026-11-28" in text
        assert "# not exported: dev.eth0.txqueuelen = 5000: it is of a device" in text
        if form == "sysctl":
            rows = (line.partition(" = ") for line in text.splitlines() if not line.startswith("#"))
            found = {name: value for name, _, value in rows}
        elif form == "tuned":
            parser = ConfigParser()
            parser.read_string(text)
            found = dict(parser["sysctl"])
        else:
            tasks = [task["ansible.posix.sysctl"] for task in yaml.safe_load(text)]
            found = {task["name"]: task["value"] for task in tasks}
        assert found == expected


def test_a_change_of_counts_is_told_with_all_its_digits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = study(tmp_path / "mine.json", **{SOMAXCONN: 12417})
    of = json.loads(file.read_text())
    of["result"]["metrics"][0] |= {
        "metric": {"name": "failed"},
        "effect": {"change": -12417.0, "interval": [-12420.0, -12400.5], "absolute": True},
    }
    file.write_text(json.dumps(of))
    for form in ("sysctl", "tuned", "ansible"):
        text = exported(file, form, capfd)
        assert "# failed better: -12,417, interval -12,420 to -12,400, 12 pairs" in text
        assert "12417" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12417, "+12,417"),
        (-12417.0, "-12,417"),
        (12417.5, "+12,418"),
        (0, "+0"),
        (-0.5075, "-0.5075"),
        (999.96, "+1000"),
        (1e9 + 7, "+1,000,000,007"),
    ],
)
def test_a_difference_is_neither_rounded_nor_has_it_an_exponent(value: float, text: str) -> None:
    assert quantities.difference(value) == text
    plain = units.difference(value)
    assert plain.replace(",", "").rstrip(".0").lstrip("-") == text.replace(",", "").rstrip(".0").lstrip("+-")


STEERS = "x\nkernel.core_pattern=|/tmp/x\x1b[2J\u2028\u202e"


@pytest.mark.parametrize("form", ["sysctl", "tuned", "ansible"])
def test_no_text_of_a_study_becomes_a_line_of_the_file(
    form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = study(tmp_path / "mine.json", **{SOMAXCONN: "8192", "dev.eth0.txqueuelen": 5000})
    of = json.loads(file.read_text())
    of |= {"name": f"a: ${{f:exec:id}} {{{{ 7*7 }}}} {STEERS}", "bench": STEERS, "finished": STEERS}
    of["machine"] = dict.fromkeys(("kernel", "cpu", "cores"), STEERS)
    of["result"]["metrics"][0]["metric"]["name"] = STEERS
    file.write_text(json.dumps(of))
    text = exported(file, form, capfd)
    assert not {"\x1b", "\u2028", "\u202e"} & {*text}
    said = [line for line in text.splitlines() if not line.startswith("#")]
    assert not any(
        "core_pattern" in line and not line.lstrip("- ").startswith(("summary", "name: ")) for line in said
    )
    # neither TuneD nor Ansible finds a variable to fill in
    assert not any("$" in line or "{" in line for line in said)
    if form == "ansible":
        (task,) = yaml.safe_load(text)
        assert task["ansible.posix.sysctl"]["value"] == "8192"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (SOMAXCONN, "5000\nkernel.core_pattern=|/tmp/x", "ND-104-04"),
        (SOMAXCONN, -1, "ND-104-05"),
        ("net.core.default_qdisc", "fq\nkernel.core_pattern=x", "ND-104-0"),
        ("net.ipv4.tcp_congestion_control", "cubic\nx = 1", "ND-104-0"),
        ("net.ipv4.ip_local_reserved_ports", "80\nx = 1", "ND-104-04"),
        ("kernel.core_pattern", 5000, "ND-104-40"),
        (f"{SOMAXCONN}\nkernel.core_pattern", 1, "ND-104-40"),
        ("dev.a\nkernel.core_pattern=x.txqueuelen", 1, "ND-104-40"),
    ],
)
def test_a_value_that_its_parameter_does_not_take_is_refused(
    name: str, value: object, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = study(tmp_path / "mine.json", **{name: value})
    for form in ("sysctl", "tuned", "ansible"):
        assert call(["tune", "export", str(file), "--format", form]) == 104
        said = capfd.readouterr()
        assert not said.out
        assert code in said.err


@pytest.mark.parametrize(
    "bench",
    [
        "wrk http://me:hunter2@host/ [abc]",
        "wrk 'http://host/?token=hunter2' [abc]",
        "load --password hunter2 -n 1 [abc]",
        "load --password='hunter2 x' -n 1 [abc]",
        "wrk -H 'Authorization: Bearer hunter2' [abc]",
        "env PGPASSWORD=hunter2 pgbench [abc]",
    ],
)
def test_a_password_of_the_load_is_not_exported(
    bench: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = study(tmp_path / "mine.json", **{SOMAXCONN: 8192})
    file.write_text(json.dumps(json.loads(file.read_text()) | {"bench": bench}))
    text = exported(file, "sysctl", capfd)
    assert "hunter2" not in text
    assert "***" in text
    assert "[abc]" in text


def test_it_is_written_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = study(tmp_path / "mine.json", **{SOMAXCONN: 8192})
    assert not exported(file, "sysctl", capfd, "--output", str(tmp_path / "90.conf"))
    assert f"{SOMAXCONN} = 8192\n" in (tmp_path / "90.conf").read_text()


def test_what_is_not_proven_or_cannot_be_exported_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    worse = study(tmp_path / "worse.json", "worse", **{SOMAXCONN: 8192})
    assert call(["tune", "export", str(worse)]) == 104
    assert "does not help" in capfd.readouterr().err
    assert "NOT PROVEN: it is worse in rps" in exported(worse, "sysctl", capfd, "--unproven")
    device = study(tmp_path / "device.json", **{"dev.eth0.txqueuelen": 5000})
    assert call(["tune", "export", str(device)]) == 104
    assert "ND-104-54" in capfd.readouterr().err
    assert call(["tune", "export", "no-such-study"]) == 104
    assert call(["tune", "export", str(worse), "--format", "puppet"]) == 104


def test_other_files_that_set_the_same_are_told_with_the_one_that_wins(tmp_path: Path) -> None:
    ours = "etc/sysctl.d/netdyno-tune.conf"
    wanted = {SOMAXCONN: "8192", "net.ipv4.tcp_rmem": "1 2 3", "net.ipv4.conf.eth0.rp_filter": "1"}

    def told(**texts: str) -> list[tuple[str, str, bool]]:
        for path in tmp_path.rglob("*.conf"):
            path.unlink()
        for name, text in {**texts, "etc/sysctl.d/netdyno-tune": ""}.items():
            path = tmp_path / f"{name}.conf"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        found = conflicts(wanted, ours, tmp_path)
        return [(one.name, str(one.file.relative_to(tmp_path)), one.wins) for one in found]

    assert told() == []
    assert told(**{"etc/sysctl": f"{SOMAXCONN}=128"}) == [(SOMAXCONN, "etc/sysctl.conf", True)]
    earlier = {"usr/lib/sysctl.d/50-a": f"-{SOMAXCONN}=128"}
    assert told(**earlier) == [(SOMAXCONN, "usr/lib/sysctl.d/50-a.conf", False)]
    # the same value is no conflict, and a later one of the same value takes an earlier conflict away
    assert told(**earlier, **{"etc/sysctl": f"{SOMAXCONN}=8192"}) == []
    assert told(**{"etc/sysctl.d/zz": "net/ipv4/tcp_rmem = 1  2\t3"}) == []
    assert told(**{"etc/sysctl.d/zz": "net/ipv4/tcp_rmem = 4 5 6"}) == [
        ("net.ipv4.tcp_rmem", "etc/sysctl.d/zz.conf", True)
    ]
    # names with wildcards give way to exact ones
    assert told(**{"etc/sysctl.d/zz": "net.ipv4.conf.*.rp_filter = 2"}) == [
        ("net.ipv4.conf.eth0.rp_filter", "etc/sysctl.d/zz.conf", False)
    ]
    # a file of the same name in a folder that is named later is not read
    masked = {"etc/sysctl.d/10-a": "", "usr/lib/sysctl.d/10-a": f"{SOMAXCONN}=1"}
    assert told(**masked) == []
