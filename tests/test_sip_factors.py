"""Factors of a SIP server over real parts: databases, DNS, forking, TLS, users who are there already."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from lab import Lab, root
from sip_lab import BEHIND, SERVER, dut, group, measured, moved, options

from netdyno.sip import profile

pytestmark = root


def registrations() -> dict[str, Any]:
    document = profile.register(options(keep_bindings=True))
    document["thresholds"] = [{"metric": "phones.index.registration_success", "min": "100%"}]
    document["phases"]["warmup"] = "0s"
    return document


@pytest.mark.parametrize(("database", "rows"), [("postgresql", "location_rows"), ("mariadb", "com_insert")])
def test_registrations_go_to_a_database_over_the_network(lab: Lab, database: str, rows: str) -> None:
    done = measured(
        lab,
        registrations(),
        db=dut(database, "back"),
        server=dut(
            "kamailio", location=f"{database}-write-through", credentials=database, database=BEHIND,
            accounts=200, users=100,
        ),
    )  # fmt: skip
    assert done.code == 0, done.text
    count = group(done, "phones").total.own
    assert count["registrations"] == count["registrations_accepted"] > 10
    # every user is written once, and each later registration of his updates the row
    users = moved(done, "server", "usrloc_registered_users")
    assert 0 < users <= moved(done, "db", rows)
    assert done.trial.dut["server"].counters_before["usrloc_registered_users"] == 100
    assert done.trial.dut["server"].counters_before["loading_seconds"] > 0


def test_a_wrong_password_is_refused_by_the_database(lab: Lab) -> None:
    document = profile.register(options(password="wrong", duration=1.0))
    done = measured(lab, document, server=dut("kamailio", location="sqlite-only", credentials="sqlite"))
    assert done.code == 99, done.text
    assert group(done, "phones").total.own["registrations_accepted"] == 0


def calls(**more: Any) -> dict[str, Any]:
    """Calls that all have to succeed, however long they take on a busy machine."""
    document = profile.call(options(**more))
    document["thresholds"] = [{"metric": f"callers.index.{name}", "min": "100%"} for name in ("ser", "scr")]
    document["phases"]["drain"] = "20s"
    return document


def second_callees(document: dict[str, Any]) -> None:
    """A second device of each callee."""
    callees = next(one for one in document["groups"] if one["name"] == "callees")
    document["groups"].insert(1, copy.deepcopy(callees) | {"name": "second"})


@pytest.mark.parametrize("fork", ["parallel", "serial", "first"])
def test_a_call_to_a_user_with_two_devices(lab: Lab, fork: str) -> None:
    document = calls()
    second_callees(document)
    if fork == "serial":
        for one in document["groups"]:
            if one["name"] == "second":
                one["model"]["sip"]["scenario"] = {"preset": "busy"}
    done = measured(lab, document, server=dut("kamailio", fork=fork))
    assert done.code == 0, done.text
    asked = group(done, "callers").total.own["session_requests"]
    rung = [group(done, name).total.own["calls_received"] for name in ("callees", "second")]
    assert asked > 10
    match fork:
        case "parallel":
            assert rung == [asked, asked]
        case "serial":
            # whoever is asked first, who is busy does not end the call
            assert rung[0] == asked and 0 <= rung[1] <= asked
        case "first":
            assert sum(rung) == asked


def test_calls_over_tls(lab: Lab) -> None:
    document = calls(uri=f"sips:{SERVER}", insecure=True)
    done = measured(lab, document, server=dut("kamailio", tls=True))
    assert done.code == 0, done.text
    assert group(done, "callers").indices["ser"] == 1.0


HOME = {"port": 5070}


@pytest.mark.parametrize("way", ["srv", "naptr", "table"])
def test_a_proxy_finds_the_next_one(lab: Lab, way: str) -> None:
    """Callers use a proxy of another domain, which finds the callees' server by DNS or by its own table."""
    document = home_and_edge()
    records = ["home A 10.92.0.2", "_sip._udp SRV 10 0 5070 home", "_sip._tcp SRV 10 0 5070 home"]
    if way == "naptr":
        records.append('@ NAPTR 10 10 "s" "SIP+D2T" "" _sip._tcp')
    found = {"next_hops": {"example.net": f"sip:{SERVER}:5070"}} if way == "table" else {"nameserver": BEHIND}
    done = measured(
        lab,
        document,
        dns=dut("knot", "back", records=records),
        home=dut("kamailio", **HOME),
        edge=dut("kamailio", domain="edge.example", **found),
    )
    assert done.code == 0, done.text
    assert group(done, "callers").indices["ser"] == 1.0
    asked = group(done, "callers").total.own["session_requests"]
    assert moved(done, "home", "core_rcv_requests_invite") == asked
    assert moved(done, "edge", "core_rcv_requests_invite") == asked
    queries = moved(done, "dns", "udp4")
    assert (queries == 0) is (way == "table")
    # NAPTR chooses TCP between the two
    assert (moved(done, "home", "tcp_established") > 0) is (way == "naptr")


@pytest.mark.parametrize("faults", [[], ["*=delay:20ms"], ["*=silent"], ["*/SRV=wrong"], ["*/A=nxdomain"]])
def test_a_proxy_meets_our_dns_server_and_its_faults(lab: Lab, faults: list[str]) -> None:
    document = home_and_edge()
    if broken := faults not in ([], ["*=delay:20ms"]):
        document["phases"] |= {"drain": "3s"}
    records = ["home A 10.92.0.2", "_sip._udp SRV 10 0 5070 home"]
    done = measured(
        lab,
        document,
        dns=dut("sip-dns", "back", records=records, faults=faults),
        home=dut("kamailio", **HOME),
        edge=dut("kamailio", domain="edge.example", nameserver=BEHIND),
    )
    assert done.code == (99 if broken else 0), done.text
    assert group(done, "callers").indices["ser"] == (0.0 if broken else 1.0)
    assert moved(done, "dns", "udp4") > 0
    if faults:
        kind = faults[0].partition("=")[2].partition(":")[0]
        assert moved(done, "dns", "delayed" if kind == "delay" else kind) > 0


def test_the_second_server_of_a_name_takes_over(lab: Lab) -> None:
    """The server that SRV prefers is not there: each call waits once for it, or none once it is known."""
    document = home_and_edge()
    records = ["home A 10.92.0.2", "_sip._udp SRV 10 0 5099 home", "_sip._udp SRV 20 0 5070 home"]
    edge = dut("kamailio", domain="edge.example", nameserver=BEHIND, response_timeout_ms=300)
    done = measured(
        lab, document, dns=dut("knot", "back", records=records), home=dut("kamailio", **HOME), edge=edge
    )
    assert done.code == 0, done.text
    assert group(done, "callers").indices["ser"] == 1.0


def home_and_edge() -> dict[str, Any]:
    """Callees register at the one server, callers call through the other."""
    document = calls()
    document["targets"] = {"home": f"sip://{SERVER}:5070", "edge": f"sip://{SERVER}"}
    for one in document["groups"]:
        one["target"] = "home" if one["name"] == "callees" else "edge"
    return document


@pytest.mark.alone  # beside others ejabberd left one BYE unanswered
@pytest.mark.sampled(1)
@pytest.mark.parametrize("uri", [f"sip:{SERVER}", f"sip:{SERVER};transport=tcp"])
def test_a_second_server_registers_and_relays(lab: Lab, uri: str) -> None:
    document = calls(uri=uri, rate=10.0, users=12)
    done = measured(lab, document, server=dut("ejabberd", accounts=200))
    assert done.code == 0, done.text
    callers = group(done, "callers")
    assert [callers.indices[name] for name in ("ser", "scr")] == [1.0, 1.0]
    assert group(done, "callees").total.own["registrations_accepted"] >= 12
    # what callees registered is gone when they leave
    assert moved(done, "server", "registrations") == 0


@pytest.mark.alone  # callers begin some time after callees, whether or not a busy machine has let these register
def test_calls_through_a_back_to_back_user_agent(lab: Lab) -> None:
    document = home_and_edge()
    b2bua = dut("sippy", next_hop=f"{SERVER}:5070")
    done = measured(lab, document, home=dut("kamailio", **HOME), edge=b2bua)
    assert done.code == 0, done.text
    asked = group(done, "callers").total.own["session_requests"]
    # each call is another one at the next hop
    assert moved(done, "home", "core_rcv_requests_invite") == asked > 10
    assert done.trial.dut["edge"].counters_after["receive_drops"] == 0


def test_a_study_of_the_paper_is_reproduced(lab: Lab) -> None:
    folder = lab.base / "kept"
    done = lab.run("reproduce", "sip", "authentication", "--quick", "--keep", str(folder), "--json")
    # 90 where the machine was too busy for a valid trial
    assert done.code in (0, 90), done.text
    (study,) = json.loads(done.out)
    assert study["study"] == "authentication"
    points = {point["levels"]["register auth"]: point for point in study["points"]}
    assert set(points) == {True, False}
    assert all(point["attempts"] > 100 and point["success"] == 1.0 for point in points.values())
    assert json.loads((folder / "authentication.json").read_text()) == study
    assert (folder / "authentication.svg").read_text().startswith("<svg")
    refused = lab.run("reproduce", "sip", "figure-13")
    assert refused.code == 104 and "figure-13" in refused.text
