"""The example of the README, run as it stands against a real server and in real namespaces."""

from __future__ import annotations

import re
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from inconclusive import OF_TIME, Verdict
from lab import Lab, root
from ports import free_port

README = Path(__file__).resolve().parents[1] / "README.md"


class _Pages(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


@root
@pytest.mark.sampled(1, of="scripts")
@pytest.mark.limit(300)
def test_the_example_of_the_readme(lab: Lab, verdict: Verdict) -> None:
    (example,) = re.findall(r"```python\n(import netdyno\n.*?)```", README.read_text(), re.DOTALL)
    port = free_port()
    lab.environment["MPLBACKEND"] = "Agg"
    # the port may be taken here; of speed and steal nothing is asked
    script = lab.write("example.py", example.replace(":8080/", f":{port}/").replace("50ms", "10min"))
    with ThreadingHTTPServer(("127.0.0.1", port), _Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = lab.wait(lab.spawn(sys.executable, script), 280.0)
        server.shutdown()
    assert done.code == 0, done.text
    said = done.out.splitlines()
    # the server may have failed some under load, never the condition that was added
    assert said[0].split()[0] in ("pass", "fail")
    assert float(said[0].split()[2]) > 0
    if "lost to steal" in said[1]:
        verdict.trials_undisturbed({"steal": 1})
    # the backlog of 16 is overrun by the burst, whatever the machine's speed; one of 8192 is not
    assert "failed better" in said[1]
    for name in ("run.png", "study.png"):
        assert (lab.base / name).read_bytes().startswith(b"\x89PNG")


SEARCH = """
import netdyno
from netdyno.search import rfc2544

found = netdyno.search({file!r}, rfc2544.throughput(resolution=0.05, repeat=2), duration=0.5)
finding = found.finding(goal="ndr")
assert netdyno.load(found.id).result.search == found.search
frame = found.to_pandas()
print(found)
print(finding.load, finding.limit)
for load, loss in frame[frame["counts"]][["load", "loss"]].values:
    print(load, loss)
"""


@pytest.mark.sampled(1, of="scripts")
def test_a_search_from_a_script(lab: Lab, verdict: Verdict) -> None:
    example = README.parent / "examples" / "bench-policer.yaml"
    done = lab.wait(
        lab.spawn(sys.executable, lab.write("s.py", SEARCH.format(file=str(example)))),
        200.0,
    )
    assert done.code == 0, done.text
    said, found, *trials = done.out.splitlines()
    assert "bench-policer" in said
    # the policer decides what is lost, by the clock: how fast the machine is only decides how many trials count
    for load, loss in (map(float, line.split()) for line in trials):
        if load >= 22_000:
            assert loss > 0.01, done.out
        if load <= 18_000:
            assert loss == 0, done.out
    (load, _) = found.split()
    if load == "None":
        verdict.undisturbed()
        tried = [one for leg in done.result.legs for one in leg.repetitions]
        late = [why for one in tried for why in one.validity.reasons if why.code in OF_TIME]
        verdict.valid(done.result.reasons or late)
    assert load != "None" and 14_000 <= float(load) <= 21_000, done.out
