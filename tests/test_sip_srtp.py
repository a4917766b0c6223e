"""SRTP of SIP calls (RFC 3711) with keys in SDP (RFC 4568): against baresip both ways, and phones that get it wrong."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from lab import Lab, Wire, root
from test_sip_media import AUDIO, Phone, baresip, called, group, hears_our_tone, options, patient

from netdyno.sip import profile

pytestmark = root

SECURE = AUDIO | {"srtp": {}}
OTHER = base64.b64encode(bytes(30)).decode()
"""A key that is not the caller's."""


class SecurePhone(Phone):
    """A phone that protects audio with the caller's own key: what it sends back as it came is authentic."""

    def audio(self, offer: str) -> str:
        line = next(x for x in offer.split("\r\n") if x.startswith("a=crypto:1 "))
        match self.does:
            case "plain":
                return "m=audio 6000 RTP/AVP 0\r\n"
            case "no key":
                line = ""
            case "another tag":
                line = line.replace("crypto:1 ", "crypto:7 ")
            case "another key":
                line = f"{line.partition('inline:')[0]}inline:{OTHER}"
        return f"m=audio 6000 RTP/SAVP 0\r\n{line}\r\n" if line else "m=audio 6000 RTP/SAVP 0\r\n"

    def packet(self, data: bytes, peer: tuple[str, int]) -> None:
        if self.does == "every tenth altered" and data[3] % 10 == 0:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.media.sendto(data, peer)
        if self.does == "twice":
            self.media.sendto(data, peer)


@pytest.mark.parametrize(
    ("does", "code", "counter"),
    [
        ("echo", 0, ""),
        ("twice", 0, "srtp_replayed"),
        ("every tenth altered", 99, "srtp_unauthenticated"),
        ("another key", 99, "srtp_wrong_key_calls"),
        ("plain", 99, "srtp_plain_calls"),
        ("no key", 99, "srtp_suite_refused"),
        ("another tag", 99, "srtp_suite_refused"),
    ],
)
def test_each_fault_of_protection_has_its_counter(
    lab: Lab, cable: Wire, does: str, code: int, counter: str
) -> None:
    with SecurePhone(cable, does) as uri:
        done = called(lab, cable, uri, rate=2.0, users=4, duration=2.0, media=SECURE)
    assert done.code == code, done.text
    total = group(done).total.own
    if counter:
        assert total[counter] > 0, total
    if code == 0:
        assert total["audio_judged_calls"] > 0 and total["one_way_audio_calls"] == 0, total
        assert total["srtp_unauthenticated"] == total["audio_refused"] == 0, total
    if does == "every tenth altered":
        # they are lost to the listener, and no others
        share = total["srtp_unauthenticated"] / (total["srtp_unauthenticated"] + total["rtp_received"])
        assert 0.08 < share < 0.12 and total["one_way_audio_calls"] == 0, total
    assert OTHER not in done.text and "inline:" not in done.text


@pytest.mark.parametrize("suite", ["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32", "AEAD_AES_256_GCM"])
def test_baresip_and_we_hear_each_other(lab: Lab, cable: Wire, tmp_path: Path, suite: str) -> None:
    media = AUDIO | {"srtp": {"suites": [suite]}}
    with baresip(cable, tmp_path, account=";mediaenc=srtp-mand") as uri:
        done = called(lab, cable, uri, rate=0.5, users=1, duration=4.0, hold=3.0, media=media)
    assert done.code == 0, done.text + (tmp_path / "log").read_text()
    total = group(done).total.own
    assert total["audio_judged_calls"] >= 1 and total["one_way_audio_calls"] == 0, total
    assert total["audio_silent_calls"] == 0 and total["rtp_received"] > 20, total
    assert total["srtp_unauthenticated"] == total["srtp_replayed"] == 0, total
    hears_our_tone(tmp_path)


def test_baresip_calls_us_and_we_hear_each_other(lab: Lab, cable: Wire, tmp_path: Path) -> None:
    called_at = options(f"sip:{Wire.FAR}", users=2, duration=16.0, media=SECURE, listen=(Wire.NEAR, 5070))
    document = patient(profile.scenario(called_at, {"preset": "uas"}, "uas"))
    path = lab.write("sip.json", json.dumps(document))
    dials = ("-e", f"/dial sip:netdyno@{Wire.NEAR}:5070", "-t", "9")
    child = lab.start("run", path, "--quiet", prefix=tuple(cable.at_near))
    lab.sampled()
    with baresip(cable, tmp_path, *dials, account=";mediaenc=srtp-mand"):
        done = lab.wait(child)
    assert done.code == 0, done.text + (tmp_path / "log").read_text()
    total = group(done, "phones").total.own
    assert total["audio_judged_calls"] == 1 and total["one_way_audio_calls"] == 0, total
    assert total["audio_silent_calls"] == 0 and total["rtp_received"] > 20, total
    assert total["srtp_unauthenticated"] == total["srtp_replayed"] == 0, total
    hears_our_tone(tmp_path)
