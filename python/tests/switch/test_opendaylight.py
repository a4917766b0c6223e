"""OpenDaylight as processes: a start that is slow, stands still or got stuck, by a stand-in; and a real one."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.switch.chain import takeover
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.takeover import How
from netdyno.switch.chain.verify import verify
from netdyno.switch.controller import karaf
from netdyno.switch.controller.karaf import Karaf
from netdyno.switch.controller.kinds import parse
from netdyno.switch.driver.ovs import OvsNetdev
from netdyno.system.journal import journal

from ..conftest import root

EXAMPLE = Path(__file__).parents[3] / "examples" / "chain.yaml"
STUCK = "Persistence failure when replaying events for persistenceId [shard-manager-config]"


@pytest.fixture
def assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose start runs what `plays` gives it."""
    home = tmp_path / "assembly"
    files = {
        "etc/org.ops4j.pax.web.cfg": "org.osgi.service.http.port = 8181\n",
        "etc/jetty.xml": '<Property name="jetty.port" default="8181"/>',
        "etc/org.apache.karaf.shell.cfg": "# sshPort\nsshPort = 8101\n",
        "etc/org.apache.karaf.management.cfg": "rmiRegistryPort = 1099\nrmiServerPort = 44444\n",
        "system/openflowjava-blueprint-config-0.17.3-config.xml": "<port>6653</port>",
        "system/openflowjava-blueprint-config-0.17.3-legacyConfig.xml": "<port>6633</port>",
        "bin/java": "#!/bin/sh\n",
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(karaf.PLACE, str(home))
    monkeypatch.setattr(karaf, "QUIET", 1.0)
    return home


def plays(home: Path, script: str) -> None:
    """`$log` is its log, `$start` the number of its start, from 1."""
    start = home / "bin" / "karaf"
    start.write_text(
        f"""#!/bin/sh
log=$KARAF_DATA/log/karaf.log
echo start >>$KARAF_BASE/starts; start=$(wc -l <$KARAF_BASE/starts)
{script}
sleep 60
"""
    )
    start.chmod(start.stat().st_mode | stat.S_IXUSR)


def awaited(folder: Path) -> int:
    """The starts that it took until `ready` was there. Raises Error."""
    node = Karaf(folder, None, journal())
    node.start()
    try:
        node.await_answer((folder / "ready").exists, "it")
    finally:
        node.stop()
    return len((folder / "starts").read_text().splitlines())


def test_a_slow_start_is_awaited_as_long_as_it_makes_progress(assembly: Path, tmp_path: Path) -> None:
    plays(assembly, "for i in 1 2 3 4 5 6; do sleep 0.5; echo line >>$log; done; touch $KARAF_BASE/ready")
    assert awaited(tmp_path / "node") == 1


@pytest.mark.parametrize("line", ["", "INFO | checkBundleDiagInfos: Elapsed time 4s"])
def test_a_start_that_stands_still_is_given_up(assembly: Path, tmp_path: Path, line: str) -> None:
    """Also if it says each second that it waits."""
    plays(assembly, f"while :; do sleep 0.2; echo '{line}' >>{'$log' if line else '/dev/null'}; done")
    with pytest.raises(Error) as wrong:
        awaited(tmp_path / "node")
    assert wrong.value.code == "ND-92-62" and "done nothing for 1 s" in wrong.value.what


def test_a_start_that_got_stuck_is_repeated(assembly: Path, tmp_path: Path) -> None:
    plays(assembly, f"[ $start = 3 ] && touch $KARAF_BASE/ready || echo '{STUCK}' >>$log")
    assert awaited(tmp_path / "node") == 3
    plays(assembly, f"echo '{STUCK}' >>$log")
    with pytest.raises(Error) as wrong:
        awaited(tmp_path / "other")
    assert wrong.value.code == "ND-92-62" and "shard-manager-config" in wrong.value.what
    assert len((tmp_path / "other" / "starts").read_text().splitlines()) == karaf.TRIES


def test_a_port_that_is_taken_is_told(assembly: Path, tmp_path: Path) -> None:
    plays(assembly, "echo 'java.io.IOException: Failed to bind to 0.0.0.0/0.0.0.0:8181' >>$log")
    with pytest.raises(Error) as wrong:
        awaited(tmp_path / "node")
    assert wrong.value.code == "ND-92-62" and "0.0.0.0:8181" in wrong.value.what
    assert len((tmp_path / "node" / "starts").read_text().splitlines()) == 1, "another start would not help"


def test_a_start_that_ends_is_told(assembly: Path, tmp_path: Path) -> None:
    plays(assembly, "echo '| ERROR | no room' >>$log; exit 3")
    with pytest.raises(Error) as wrong:
        awaited(tmp_path / "node")
    assert "status 3" in wrong.value.what and "no room" in wrong.value.what


def test_nodes_of_a_cluster_have_ports_of_their_own(assembly: Path, tmp_path: Path) -> None:
    plays(assembly, "")
    node = Karaf(tmp_path / "node", None, journal(), 1, 3)
    node.start()
    node.stop()
    etc = tmp_path / "node" / "etc"
    assert "port = 8182" in (etc / "org.ops4j.pax.web.cfg").read_text()
    assert 'default="8182"' in (etc / "jetty.xml").read_text()
    assert "sshPort = 8102" in (etc / "org.apache.karaf.shell.cfg").read_text()
    management = (etc / "org.apache.karaf.management.cfg").read_text()
    assert "1100" in management and "44445" in management
    first = (
        etc / "opendaylight" / "datastore" / "initial" / "config" / "default-openflow-connection-config.xml"
    )
    assert first.read_text() == "<port>6654</port>"
    initial = tmp_path / "node" / "configuration" / "initial"
    known = (initial / "akka.conf").read_text()
    assert 'roles = ["member-2"]' in known and "canonical.port = 2551" in known
    assert all(f"127.0.0.1:{port}" in known for port in (2550, 2551, 2552))
    assert (initial / "module-shards.conf").read_text().count('"member-3"') == 3


def test_where_opendaylight_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(karaf.PLACE, str(tmp_path))
    with pytest.raises(Error) as wrong:
        karaf.find_assembly()
    assert wrong.value.code == "ND-92-62" and "./do setup opendaylight" in wrong.value.fix


@pytest.mark.parametrize(
    ("controller", "kills", "how", "at"),
    [
        ("opendaylight:3", 2, "kill", "--kills"), ("opendaylight:3", 1, "partition", "--how"),
        ("opendaylight:2", 1, "kill", "--kills"), ("opendaylight,url=http://x", 1, "kill", "--controller"),
        ("static", 1, "kill", "--controller"), ("embedded", 1, "kill", "--kills"),
        ("embedded:2", 2, "kill", "--kills"),
    ],
)  # fmt: skip
def test_controllers_without_another_master_are_refused(
    controller: str, kills: int, how: How, at: str
) -> None:
    with pytest.raises(Error) as wrong:
        takeover.check(parse(controller), kills, how)
    assert wrong.value.code == "ND-104-83" and wrong.value.at == at and wrong.value.fix


def test_controllers_with_another_master_are_accepted() -> None:
    takeover.check(parse("opendaylight"), 3, "kill")
    takeover.check(parse("opendaylight:3"), 1, "kill")
    takeover.check(parse("embedded:2"), 5, "partition")


CHAIN = {
    "controller": "opendaylight", "ipv6": True,
    "vnfs": {"a": {"kind": "bridge", "replicas": 2}, "look": {"kind": "dpi"}}, "chain": ["a", "look"],
    "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["look"]}},
}  # fmt: skip


def there() -> None:
    """Skip where a real one cannot run."""
    try:
        karaf.find_assembly()
    except Error as e:
        pytest.skip(e.what)
    if why := OvsNetdev.missing():
        pytest.skip(why)


@root
@pytest.mark.full
def test_a_real_opendaylight_steers_and_mutants_are_named() -> None:
    """One of each kind of mutant: a rule that is gone, wrong, too many, without its copy, with its group turned."""
    there()
    with ChainLab(checked(CHAIN, "x")) as made:
        found = verify(made)
        assert found.good, found.first_fault
        missed, every = [], list(mutants(made.rules))
        for word in ("delete", "misdirect", "duplicate", "no copy", "turn group"):
            one = next(one for one in every if one.name.startswith(word))
            made.program(one.rules)
            tried = [verify(made, 1).named for _ in range(2)]
            if not any(named and named <= one.changed for named in tried):
                missed.append((one.name, tried))
        assert not missed
        made.program(made.rules)
        assert verify(made).good
        assert {one.flow.cookie for one in made.rules} <= set(made.flow_cookies())


@root
@pytest.mark.full
@pytest.mark.parametrize("controller", ["opendaylight", "opendaylight:3"])
def test_a_chain_outlives_a_real_opendaylight(controller: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Killed: one that is alone starts again and has its flows; of three, another node takes over."""
    there()
    assert call(["chain", "takeover", str(EXAMPLE), "--controller", controller, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    (taken,) = found["takeovers"]
    assert (taken["killed"] == taken["master"]) == (controller == "opendaylight")
    assert not found["lost"] and not found["flows_missing"] and not found["flows_excess"]
