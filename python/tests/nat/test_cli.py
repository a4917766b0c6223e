"""`netdyno nat` over the stand-in daemon."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno.cli import app
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.nat import running
from netdyno.nat.verbs import completion
from netdyno.nat.verbs import show as nat_show

from .shared import CGN, changed

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: Path) -> Path:
    """A folder for sockets that is this test's only."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setattr("netdyno.paths.runtime", lambda: path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, CGN)


def written(folder: Path, configuration: dict[str, Any]) -> Path:
    path = folder / "cgn.yaml"
    path.write_text(yaml.safe_dump(configuration, sort_keys=False))
    return path


@pytest.fixture
def cgn(runtime: Path) -> Iterator[Path]:
    """A NAT that runs."""
    with (
        Daemon(runtime / "nd-nat-cgn.sock", runtime / "nd-nat-cgn.log") as daemon,
        daemon.connect() as client,
    ):
        client.acquire()
        client.call("graph.run", graph={"ports": {}, "elements": {}, "edges": []})
        yield daemon.socket


def left_in(runtime: Path) -> list[Path]:
    """What is there, but the folder in which journals of all state folders are told."""
    return [path for path in runtime.iterdir() if path.name != "journals"]


def stale(path: Path) -> None:
    """A socket that nobody answers on."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


# ---- run


def test_a_nat_runs_for_a_while_and_leaves_nothing(file: Path, runtime: Path, capsys: Said) -> None:
    assert app.call(["nat", "run", str(file), "--for", "0.3s", "--interval", "0.1s"]) == 0
    said = capsys.readouterr()
    assert " running conntrack worker 0 core " in said.out
    assert " running in-host worker " in said.out
    assert "the NAT cgn runs on core" in said.err
    assert not left_in(runtime)


def test_a_daemon_that_dies_leaves_its_last_words_and_its_log(
    file: Path, runtime: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIE", "stats")
    assert app.call(["nat", "run", str(file), "--for", "10s", "-q"]) == 91
    said = capsys.readouterr().err
    assert "ND-91-20" in said and "SIGKILL" in said and "told to die at stats" in said
    (left,) = left_in(runtime)
    assert "told to die" in left.read_text()


def test_no_time_is_over_at_once(file: Path, capsys: Said) -> None:
    assert app.call(["nat", "run", str(file), "--for", "0s", "-q"]) == 0


def test_the_last_counters_are_one_document(file: Path, capsys: Said) -> None:
    assert app.call(["nat", "run", str(file), "--for", "0.1s", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in found["elements"]} >= {"nat", "conntrack", "inside.rx", "out-host"}
    assert found["status"]["state"] == "running"


def test_quiet_shows_no_counters(file: Path, capsys: Said) -> None:
    assert app.call(["nat", "run", str(file), "--for", "0.1s", "-q"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "the NAT cgn runs" in said.err


def test_what_the_daemon_refuses_is_told_by_its_key(tmp_path: Path, capsys: Said) -> None:
    path = written(tmp_path, changed(pool=["192.0.2.0/28"], inside__device="none"))
    assert app.call(["nat", "run", str(path), "--for", "0.1s"]) == 104
    said = capsys.readouterr().err
    assert f"at  {path}: pool[0]" in said
    assert f"at  {path}: inside.device" in said
    assert "elements." not in said


@pytest.mark.parametrize("verb", [["nat", "check"], ["validate"]])
def test_what_the_daemon_would_refuse_is_told_without_running(
    tmp_path: Path, runtime: Path, capsys: Said, verb: list[str]
) -> None:
    path = written(tmp_path, changed(pool=["192.0.2.0/28"], inside__device="none"))
    assert app.call([*verb, str(path)]) == 104
    said = capsys.readouterr().err
    assert f"at  {path}: pool[0]" in said
    assert f"at  {path}: inside.device" in said
    assert "elements." not in said
    assert not left_in(runtime)


def test_of_two_that_start_together_one_is_refused(runtime: Path) -> None:
    for _ in range(2):
        refusal = pytest.raises(Error, match="a NAT named cgn runs already")
        with running.claimed("cgn"), running.claimed("other"), refusal as refused, running.claimed("cgn"):
            pass
        assert refused.value.code == running.NONE
        assert not left_in(runtime)


def test_a_name_runs_once(file: Path, cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "run", str(file), "--for", "0.1s"]) == 104
    said = capsys.readouterr().err
    assert "ND-104-35: a NAT named cgn runs already" in said
    # another name goes
    other = written(file.parent, changed(name="other"))
    assert app.call(["nat", "run", str(other), "--for", "0.1s", "-q"]) == 0


def test_a_socket_that_was_left_is_in_nobodys_way(file: Path, runtime: Path) -> None:
    stale(runtime / "nd-nat-cgn.sock")
    assert app.call(["nat", "run", str(file), "--for", "0.1s", "-q"]) == 0


def test_a_bad_configuration_starts_nothing(tmp_path: Path, runtime: Path, capsys: Said) -> None:
    path = written(tmp_path, changed(pool=["10.0.0.0/28"]))
    for verb in ("run", "check", "expand"):
        assert app.call(["nat", verb, str(path)]) == 104
        assert f"at  {path}: pool[0]" in capsys.readouterr().err
    assert not left_in(runtime)


# ---- init, check, expand


def test_init_prints_or_writes_what_is_good(tmp_path: Path, capsys: Said) -> None:
    assert app.call(["nat", "init"]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "mine.yaml"
    assert app.call(["nat", "init", "-o", str(path)]) == 0
    assert path.read_text() == printed
    assert app.call(["nat", "init", "-o", str(path)]) == 104
    assert "there already" in capsys.readouterr().err
    assert app.call(["nat", "init", "-o", str(path), "--force"]) == 0
    assert app.call(["nat", "check", str(path), "--no-devices"]) == 0
    assert app.call(["nat", "init", "-o", "-"]) == 0
    assert capsys.readouterr().out.endswith(printed)


def test_check_says_what_there_is_room_for(file: Path, capsys: Said) -> None:
    assert app.call(["nat", "check", str(file), "--no-devices"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{file}: good\n")
    assert "16 outside addresses, 126 port blocks each" in said
    assert "2,048 ports of each protocol for a subscriber" in said
    assert "496 subscribers with all their port blocks, 2,016 with one" in said
    assert "1,048,576 sessions, at most 112 MiB" in said
    assert app.call(["nat", "check", str(file), "--no-devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["guaranteed"], found["workers"][0]["elements"][0]) == (496, "inside.rx")


def test_check_looks_whether_the_devices_are_here(file: Path, tmp_path: Path, capsys: Said) -> None:
    assert app.call(["nat", "check", str(file)]) == 92
    said = capsys.readouterr()
    assert said.out == "" and "ND-92-35" in said.err and f"{file}: inside.device" in said.err
    assert "there is no device 0000:83:00.0 on the PCI bus here" in said.err and "83:00.1" in said.err
    ports = {"inside__device": "af_packet:lo", "outside__device": "net_af_packet1,framecnt=64,iface=nd-none"}
    assert app.call(["nat", "check", str(written(tmp_path, changed(**ports)))]) == 92
    said = capsys.readouterr()
    assert "outside.device" in said.err and "inside.device" not in said.err
    others = ", ".join(sorted(name for _, name in socket.if_nameindex() if name != "lo")[:12])
    assert "there is no interface nd-none here" in said.err and others in said.err
    ports["outside__device"] = "pair:x"
    assert app.call(["nat", "check", str(written(tmp_path, changed(**ports)))]) == 0


def test_expand_prints_a_graph_that_says_the_same(tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, changed(subscribers=["10.0.0.0/8"]))
    assert app.call(["nat", "expand", str(file)]) == 0
    text = capsys.readouterr().out
    # each list is written where it is meant: people are to change them
    assert "&" not in text
    printed = yaml.safe_load(text)
    assert app.call(["nat", "expand", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == printed
    assert printed["elements"]["conntrack"]["pool"] == ["203.0.113.16/28"]


# ---- status, sessions, subscribers


def test_status_has_a_row_for_each_worker_and_one_for_all(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == "conntrack#0"
    assert "1,250 of 1,048,576" in lines[1]
    assert "117 MB" in lines[1].replace("\u202f", " ")
    assert lines[3].split()[0] == "all"
    assert "2,500 of 2,097,152" in lines[3]
    assert "no_mapping 14" in [" ".join(line.split()) for line in lines]
    assert lines[-1].split() == ["SUCCESS", "6"]
    assert app.call(["nat", "status", "cgn", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nat"], len(found["workers"])) == ("cgn", 2)


def test_sessions_are_fetched_page_by_page(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "sessions", "--limit", "2200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["sessions"]), found["more"]) == (2200, True)
    assert len({one["outside"] for one in found["sessions"]}) == 2200
    assert app.call(["nat", "sessions", "--limit", "2500", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["more"]


def test_sessions_are_shown_with_units(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "sessions", "cgn", "--subscriber", "10.0.0.7", "-n", "2"]) == 0
    said = capsys.readouterr()
    head, first, _ = said.out.replace("\u202f", " ").splitlines()
    assert head.split()[:3] == ["protocol", "inside", "VLAN"]
    assert first.split()[:6] == [
        "tcp",
        "10.0.0.7:40007",
        "100",
        "203.0.113.23:1031",
        "198.51.100.9:443",
        "open",
    ]
    assert "1.5 s" in first
    assert "3.00 MB" in first
    assert "there are more than these 2" in said.err
    # a mapping that waits for whoever comes
    assert app.call(["nat", "sessions", "cgn", "--subscriber", "10.0.0.9", "-n", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[4] == "–"


def test_who_had_an_address_and_port(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "sessions", "--outside", "203.0.113.23:1031", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["sessions"]
    assert found["inside"] == "10.0.0.7:40007"
    assert app.call(["nat", "sessions", "--outside", "203.0.113.99"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_sessions_are_cleared_to_the_last_and_counted(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "clear", "cgn", "--all"]) == 0
    assert capsys.readouterr().out == "2,499 sessions ended\n"
    # what subscribers asked for only if that is meant
    assert app.call(["nat", "clear", "--all", "--mappings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"nat": "cgn", "ended": 2500}
    for meant, ended in (
        (["--subscriber", "10.0.0.7"], "250 sessions"),
        (["--outside", "203.0.113.23:1031"], "1 session"),
        (["--remote", "198.51.100.9:443", "--protocol", "icmp"], "833 sessions"),
    ):
        assert app.call(["nat", "clear", *meant]) == 0
        assert capsys.readouterr().out == f"{ended} ended\n"


def test_subscribers_have_their_ports_as_ranges(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "subscribers", "--subscriber", "10.0.0.7"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.split(maxsplit=4) == ["10.0.0.7", "100", "203.0.113.23", "250", "1024–2047, 4096–4607"]
    # one that has no port block yet
    assert app.call(["nat", "subscribers", "--subscriber", "10.0.0.9"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["10.0.0.9", "–", "–", "250", "–"]
    assert app.call(["nat", "subscribers", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["subscribers"]) == 10
    assert nat_show.blocks([]) == nat_show.tags([]) == "–"
    assert nat_show.tags([200, 100]) == "200.100"


def test_a_pair_is_shown_and_handed_over(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "pair"]) == 0
    said = capsys.readouterr().out.replace("\u202f", " ")
    for line in (
        "role active since 1 min 30 s",
        "standby process 4711",
        "told 12,345 updates",
        "left out 3 forward",
        "takeovers 1, the last 1 min 30 s ago: the other ended or died",
        "took 1.2 ms from when it was noticed, 62 ms from the last message",
    ):
        assert line in [" ".join(row.split()) for row in said.splitlines()], said
    assert app.call(["nat", "metrics"]) == 0
    said = capsys.readouterr().out
    assert 'netdyno_nat_pair_active{nat="cgn"} 1.0' in said
    assert 'netdyno_nat_pair_lost_updates_total{nat="cgn"} 2.0' in said
    assert app.call(["nat", "pair", "cgn", "--hand-over", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nat"], found["pair"]["role"]) == ("cgn", "standby")
    assert app.call(["nat", "pair"]) == 0
    assert "678 updates, 9 sweeps" in capsys.readouterr().out


def test_a_nat_without_sites_has_a_pool(cgn: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    at = "graph.elements"

    def none(*_: object, **__: object) -> None:
        raise Error("ND-104-11", 'the graph "graph-1" has no element of the kind nat-sites', at=at)

    monkeypatch.setattr(running.Running, "pages", none)
    assert app.call(["nat", "sites"]) == 104
    assert "the NAT cgn has a pool and no sites" in capsys.readouterr().err
    # one that stops in between has not no sites
    at = "graph"
    assert app.call(["nat", "sites"]) == 104
    assert "has no element" in capsys.readouterr().err


def test_sites_have_their_addresses_and_leases(cgn: Path, capsys: Said) -> None:
    assert app.call(["nat", "sites"]) == 0
    _, bound, released = capsys.readouterr().out.splitlines()
    assert bound.split()[:5] == ["VLAN", "7", "02:4e:44:00:00:00", "203.0.113.100", "bound"]
    assert bound.split()[-3:] == ["203.0.113.1", "12", "1"]
    assert released.split()[2:] == ["02:4e:44:00:00:01", "–", "released", "–", "–", "0", "0"]
    assert app.call(["nat", "sites", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["lease_s"] for one in found["sites"]] == [1800.0, None]
    assert found["more"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sessions", "--subscriber", "10.0.0.300"], "'10.0.0.300' is not an IPv4 address"),
        (["sessions", "--subscriber", "10.0.0.1:80"], "is not an IPv4 address"),
        (["sessions", "--outside", "203.0.113.1:70000"], "or one with a port"),
        (["sessions", "--outside", "203.0.113.1:"], "or one with a port"),
        (["sessions", "--subscriber", "10.0.0.1@4095"], "or one with VLANs"),
        (["sessions", "--protocol", "sctp"], "one of udp, tcp, icmp"),
        (["clear"], "nothing says which sessions"),
        (["clear", "--mappings"], "nothing says which sessions"),
        (["clear", "--all", "--remote", "198.51.100.9"], "--remote only some"),
        (["clear", "--subscriber", "10.0.0.1@1.2.3"], "or one with VLANs"),
        (["sessions", "--limit", "0"], "a whole number, 1 or more"),
        (["run", "nothing.yaml"], "No such file"),
        (["run"], "issing argument"),
        (["status", "nobody"], "no NAT named nobody runs here"),
    ],
)
def test_bad_input_is_104_and_says_why(arguments: list[str], words: str, capsys: Said) -> None:
    assert app.call(["nat", *arguments]) == 104
    assert words in capsys.readouterr().err


def test_without_a_nat_it_says_so(runtime: Path, capsys: Said) -> None:
    # one that was killed left its socket
    stale(runtime / "nd-nat-old.sock")
    assert app.call(["nat", "status"]) == 104
    assert "ND-104-35: no NAT runs here" in capsys.readouterr().err
    assert list(completion.running_nat("ol")) == ["old"]


def test_of_several_one_is_chosen(cgn: Path, runtime: Path, capsys: Said) -> None:
    with Daemon(runtime / "nd-nat-two.sock", runtime / "two.log"):
        assert app.call(["nat", "status"]) == 104
        assert "Choose one: cgn, two" in capsys.readouterr().err
        assert app.call(["nat", "status", "cgn"]) == 0
        capsys.readouterr()
        # a daemon whose ports are not open yet
        assert app.call(["nat", "status", "two"]) == 104
        assert "the NAT two carries nothing" in capsys.readouterr().err
        assert app.call(["nat", "status", "three"]) == 104
        assert "There are: cgn, two" in capsys.readouterr().err


def test_a_nat_that_ends_while_it_is_asked_is_lost(cgn: Path) -> None:
    with running.connected("cgn") as nat:
        nat.client.close()
        with pytest.raises(Error) as wrong:
            nat.call("nat.status")
    assert wrong.value.code == "ND-91-21"
