"""A call with audio to linphone: both directions are heard."""

from __future__ import annotations

import os
import shutil
import subprocess
import wave
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import Lab, Wire, root, sh, until
from test_sip_media import called, goertzel, group, tone

pytestmark = root

SETTINGS = f"""[sip]
sip_port=5060
sip_tcp_port=0
sip_tls_port=0
contact=sip:service@{Wire.FAR}
[rtp]
audio_rtp_port=7078
[sound]
echocancellation=0
"""


@contextmanager
def linphone(cable: Wire, folder: Path) -> Iterator[str]:
    """linphonec in the far namespace: it answers at once, plays 700 Hz and records what it hears."""
    program = shutil.which("linphonec")
    if program is None:
        pytest.skip("linphonec is not installed: apt-get install linphone-cli")
    (folder / ".local/share/linphone").mkdir(parents=True)
    (folder / "linphonerc").write_text(SETTINGS)
    tone(folder / "plays.wav", 700)
    # it takes for its own the address that the default route would be used from; nothing is forwarded
    sh("ip", "-n", cable.far, "route", "add", "default", "via", Wire.NEAR)
    command = [*cable.at_far, program, "-c", str(folder / "linphonerc"), "-a"]
    with (folder / "said").open("w") as said:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            text=True,
            env={**os.environ, "HOME": str(folder)},
        )
        assert child.stdin
        try:
            print(
                f"soundcard use files\nplay {folder}/plays.wav\nrecord {folder}/heard.wav",
                file=child.stdin,
                flush=True,
            )
            until(lambda: ":5060" in sh(*cable.at_far, "ss", "-Hlun"), 60, "linphonec does not listen")
            until(lambda: "record" in (folder / "said").read_text(), 60, "linphonec has no command line")
            yield f"sip:{Wire.FAR}"
            print("quit", file=child.stdin, flush=True)
            child.wait(30)
        finally:
            child.kill()
            child.wait()


@pytest.mark.limit(200)
def test_linphone_and_we_hear_each_other(lab: Lab, cable: Wire, tmp_path: Path) -> None:
    with linphone(cable, tmp_path) as uri:
        # one call, as the record is of the last
        done = called(lab, cable, uri, rate=1.0, max_calls=1, duration=2.0, hold=4.0, arrival="constant")
    said = (tmp_path / "said").read_text()
    assert done.code in (0, 90), done.text + said
    callers = group(done)
    total = callers.total.own
    assert total["sessions_completed"] == total["session_requests"] == 1, done.text + said
    assert not any(callers.total.failures.values()), done.text
    assert total["audio_judged_calls"] == 1 and total["one_way_audio_calls"] == 0, total
    # linphonec's tone came here, and how much of it came in time is up to the machine
    assert total["audio_silent_calls"] == total["audio_refused"] == 0 and total["rtp_received"] > 20, total
    # its record is our tone of 440 Hz, which a busy machine may interrupt, and nothing of its own
    with wave.open(str(tmp_path / "heard.wav")) as heard:
        samples = array("h", heard.readframes(heard.getnframes()))
        rate = heard.getframerate()
    quarters = [samples[at : at + rate // 4] for at in range(0, len(samples) - rate // 4, rate // 4)]
    assert sum(goertzel(one, 440, rate) > 0.9 for one in quarters) >= 2, len(samples)
    assert max(goertzel(one, 700, rate) for one in quarters) < 0.1
