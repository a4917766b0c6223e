"""`netdyno serve`: curl, wrk and mosquitto's clients get what they ask for; counters are what clients counted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lab import Lab, Wire, experiment, group, profile, root, sh, until
from served import Served

pytestmark = root

FAR = Wire.FAR


def serve(lab: Lab, cable: Wire, protocol: str, *words: str) -> Served:
    """A server at the far end of a cable."""
    port = {"http": 80, "mqtt": 1883}[protocol]
    return Served(lab, cable.at_far, protocol, f"{FAR}:{port}", *words)


def curl(cable: Wire, *words: str) -> str:
    """What curl says: status, bytes, connections."""
    form = "%{http_code} %{size_download} %{num_connects}\\n"
    return sh(*cable.at_near, "curl", "-sS", "--max-time", "60", "-w", form, *words)


def test_curl_and_wrk_get_what_they_ask_for(lab: Lab, cable: Wire) -> None:
    served = serve(lab, cable, "http", "--workers", "2")
    url = f"http://{FAR}"
    body = lab.base / "body"
    body.write_bytes(bytes(100_000))
    nothing = ("-o", "/dev/null")
    assert curl(cable, *nothing, f"{url}/50000000") == "200 50000000 1\n"
    assert curl(cable, *nothing, *nothing, f"{url}/7", f"{url}/8") == "200 7 1\n200 8 0\n"
    assert (
        curl(cable, *nothing, "--data-binary", f"@{body}", "-H", "Expect: 100-continue", url) == "200 2 1\n"
    )
    assert (
        curl(cable, *nothing, "-H", "Transfer-Encoding: chunked", "-T", str(body), f"{url}/9") == "200 9 1\n"
    )
    assert curl(cable, "-I", *nothing, f"{url}/5").startswith("200 ")
    assert curl(cable, *nothing, "--http1.0", f"{url}/6") == "200 6 1\n"
    text = sh(*cable.at_near, "wrk", "-t1", "-c20", "-d1s", f"{url}/512")
    assert "Non-2xx" not in text and "Socket errors" not in text
    done = int(re.findall(r"(\d+) requests in", text)[0])
    counters = served.counters()
    # wrk leaves those of its last moment on their way
    assert 7 + done <= counters["requests"] <= 7 + done + 20
    assert counters["responses"] == counters["requests"]
    assert (counters["bad_requests"], counters["open_connections"]) == (0, 0)


def test_what_our_load_counts_is_what_the_server_counts(lab: Lab, cable: Wire) -> None:
    served = serve(lab, cable, "http", "--errors", "10%", "--delay", "20ms", "--seed", "3")
    document = profile(
        group("http", f"http://{FAR}/100", {"http": {"interval": "50ms"}}, devices=10), measure="1s"
    )
    document["phases"]["warmup"] = "0s"
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    (one,) = done.trial.groups
    counters = served.counters()
    assert one.total.messages_sent == counters["requests"] == counters["responses"]
    assert sum(one.total.failures.values()) == counters["refused_requests"] > 0
    assert one.delays["response"].min >= 19_900_000


def test_a_broker_for_clients_of_mosquitto(lab: Lab, cable: Wire) -> None:
    served = serve(lab, cable, "mqtt")
    text = lab.base / "got"
    with text.open("w") as out:
        reader = lab.spawn(
            *cable.at_near, "mosquitto_sub", "-h", FAR, "-V", "5", "-q", "2", "-t", "a/#", "-C", "4", "-F", "%t %q %p",
            stdout=out,
        )  # fmt: skip
        until(
            lambda: f"{FAR}:1883" in sh(*cable.at_near, "ss", "-Htn", "state", "established"), 60, "no reader"
        )
        publish(cable, "-r", "-t", "a/up", "-m", "first")
        until(lambda: "first" in text.read_text(), 60, "it is not subscribed")
        for qos in ("0", "1", "2"):
            publish(cable, "-V", "311", "-q", qos, "-t", f"a/{qos}", "-m", "x")
        assert reader.wait(60) == 0
    assert text.read_text().split("\n")[:-1] == ["a/up 0 first", "a/0 0 x", "a/1 1 x", "a/2 2 x"]
    late = ("mosquitto_sub", "-h", FAR, "-t", "a/+", "-C", "1", "-F", "%t %r %p")
    assert sh(*cable.at_near, *late) == "a/up 1 first\n"
    counters = served.counters()
    assert [counters[f"messages_received_qos{qos}"] for qos in (0, 1, 2)] == [2, 1, 1]
    assert (counters["messages_sent"], counters["protocol_errors"]) == (5, 0)


def publish(cable: Wire, *words: str) -> None:
    sh(*cable.at_near, "mosquitto_pub", "-h", FAR, *words)


@pytest.mark.parametrize("qos", [1, 2])
def test_publishes_are_counted_on_both_sides(lab: Lab, cable: Wire, qos: int) -> None:
    served = serve(lab, cable, "mqtt")
    model: dict[str, Any] = {"mqtt": {"qos": qos, "version": "5.0", "interval": "50ms"}}
    document = profile(group("mqtt", f"mqtt://{FAR}", model, devices=20), measure="1s")
    document["phases"]["warmup"] = "0s"
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.code == 0, done.text
    (one,) = done.trial.groups
    counters = served.counters()
    assert one.total.messages_sent == counters["messages_received"] == counters["messages_acknowledged"] > 0


def test_an_experiment_has_it_as_its_witness(lab: Lab) -> None:
    document = experiment(
        profile(
            group("http", "web", {"http": {"interval": "50ms"}}, devices=4),
            group("mqtt", "broker", {"mqtt": {"qos": 1, "interval": "50ms"}}, devices=4),
        ),
        web={"driver": "http-server", "host": "srv", "options": {"workers": 2}},
        broker="mqtt-broker",
    )
    done = lab.run("run", lab.write("e.json", document))
    assert done.code == 0, done.text
    assert len(done.trial.witnesses) == 2
    for witness in done.trial.witnesses:
        assert witness.agree and witness.ours == witness.theirs > 50, witness


def test_a_server_on_a_port_is_a_device_under_test(lab: Lab) -> None:
    memif = f"socket-abstract=yes,socket=/nd-{lab.base.name},bsize=10240"
    profiled = profile(group("http", "web", {"http": {"path": "/8000"}}, devices=4))
    port = {
        "name": "a",
        "device": f"net_memif,role=client,{memif}",
        "ip": "10.95.0.1/24",
        "mtu": 9000,
    }
    profiled["transport"] = {"dpdk": {"ports": [port]}}
    options = {"device": f"net_memif,role=server,{memif}", "ip": "10.95.0.2/24", "mtu": 9000}
    document = experiment(profiled, web={"driver": "http-server", "options": options})
    del document["legs"][0]["topology"]
    done = lab.run("run", lab.write("e.json", document))
    (witness,) = done.trial.witnesses
    assert witness.agree and witness.ours == witness.theirs > 50, done.text
    (one,) = done.trial.groups
    assert one.measured.messages_delivered and not one.measured.failures
    interface = done.trial.interfaces["a"]
    assert interface["rx_bytes"] > 4000 * interface["rx_packets"], "a response is one jumbo frame"
    options.pop("ip")
    done = lab.run("validate", lab.write("e.json", document))
    assert done.code == 104 and "device and ip belong together" in done.text


def test_an_address_that_is_taken_is_told(lab: Lab, cable: Wire) -> None:
    serve(lab, cable, "http", "--workers", "3")
    done = lab.run("serve", "http", "--listen", f"{FAR}:80", prefix=cable.at_far)
    assert (
        done.code == 92 and "ND-92-51: " in done.err and "in use" in done.err and "ND-92-10" not in done.err
    )
    done = lab.run("serve", "mqtt", "--workers", "2")
    assert done.code == 104 and "ND-104-74" in done.err and "workers" in done.err
