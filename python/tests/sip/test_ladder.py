"""Ladders: captures of every shape give the messages that went over the wire, and no credentials."""

from __future__ import annotations

import io
import json
import random
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dpkt
import pytest

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.sip.ladder import follow, hep, page, text
from netdyno.sip.ladder.arrow import hidden
from netdyno.sip.ladder.calls import calls
from netdyno.sip.ladder.capture import Message, Packets, read

UAC, UAS = ("10.0.0.1", 5060), ("10.0.0.2", 5062)


def message(start: str, cseq: str, call_id: str = "a@b", body: str = "", **fields: str) -> bytes:
    more = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    lines = [start, "Via: SIP/2.0/UDP x", f"Call-ID: {call_id}", f"CSeq: {cseq}", *more]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


INVITE = message("INVITE sip:bob@b SIP/2.0", "1 INVITE", body="v=0\r\n" * 40)
RINGING = message("SIP/2.0 180 Ringing", "1 INVITE")
OK = message("SIP/2.0 200 OK", "1 INVITE")
ACK = message("ACK sip:bob@b SIP/2.0", "1 ACK")


def address(host: str) -> bytes:
    return bytes(int(part) for part in host.split("."))


def ip(payload: bytes, source: str, to: str, protocol: int, **more: Any) -> Any:
    packet = dpkt.ip.IP(src=address(source), dst=address(to), p=protocol, **more)
    packet.data = payload
    packet.len = 20 + len(payload)
    return packet


def udp(data: bytes, source: tuple[str, int] = UAC, to: tuple[str, int] = UAS) -> bytes:
    datagram = dpkt.udp.UDP(sport=source[1], dport=to[1], ulen=8 + len(data))
    datagram.data = data
    return bytes(datagram)


def frame(packet: Any) -> bytes:
    return bytes(dpkt.ethernet.Ethernet(data=packet, type=0x0800))


def tcp(data: bytes, seq: int, flags: int, source: tuple[str, int] = UAC, to: tuple[str, int] = UAS) -> bytes:
    segment = dpkt.tcp.TCP(sport=source[1], dport=to[1], seq=seq & 0xFFFFFFFF, flags=flags, off=5)
    segment.data = data
    return frame(ip(bytes(segment), source[0], to[0], 6))


def datagrams(*all_: tuple[bytes, bool]) -> list[bytes]:
    """Frames of messages; True: from the caller."""
    ways = {True: (UAC, UAS), False: (UAS, UAC)}
    return [
        frame(ip(udp(data, *ways[forth]), ways[forth][0][0], ways[forth][1][0], 17)) for data, forth in all_
    ]


def pcap(path: Path, frames: Sequence[bytes], gap: float = 0.1, ng: bool = False) -> Path:
    with path.open("wb") as file:
        writer = dpkt.pcapng.Writer(file) if ng else dpkt.pcap.Writer(file)
        for at, one in enumerate(frames):
            writer.writepkt(one, 1_700_000_000 + at * gap)
    return path


CALL = [(INVITE, True), (INVITE, True), (RINGING, False), (OK, False), (ACK, True)]


@pytest.mark.parametrize("ng", [False, True])
def test_a_call_over_udp(tmp_path: Path, ng: bool) -> None:
    [call] = calls(read(pcap(tmp_path / "c.pcap", datagrams(*CALL), ng=ng)))
    assert call.parties == ["10.0.0.1:5060", "10.0.0.2:5062"]
    assert [(one.summary, one.again) for one in call.arrows] == [
        ("INVITE sip:bob@b", False),
        ("INVITE sip:bob@b", True),
        ("180 Ringing (INVITE)", False),
        ("200 OK (INVITE)", False),
        ("ACK sip:bob@b", False),
    ]
    assert [round(one.at_ms) for one in call.arrows] == [0, 100, 200, 300, 400]
    assert (call.failures, call.repeated) == ([], 1)
    shown = text.lines(call.arrows)
    assert "INVITE sip:bob@b (repeated)" in shown[2] and shown[2].endswith(">|")
    assert "|<" in shown[3]


def test_a_user_agent_keeps_its_column_from_another_port(tmp_path: Path) -> None:
    """A retry from a new port is no new party; a proxy on the same host is one."""
    proxy, retry = (UAC[0], 5070), (UAC[0], 40001)
    invite = b"INVITE sip:bob@b SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@a>;tag=t1\r\n"
    invite += b"Call-ID: x\r\nCSeq: 1 INVITE\r\n\r\n"
    passed = invite.replace(
        b"Via:", b"Via: SIP/2.0/UDP p;branch=z9hG4bK2, SIP/2.0/UDP q;branch=z9hG4bK3\r\nVia:"
    )
    busy = b"SIP/2.0 486 Busy Here\r\nFrom: <sip:a@a>;tag=t1\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\n\r\n"
    ways = [(invite, UAC, proxy), (passed, proxy, UAS), (invite, retry, proxy), (busy, proxy, retry)]
    frames = [frame(ip(udp(data, a, b), a[0], b[0], 17)) for data, a, b in ways]
    [call] = calls(read(pcap(tmp_path / "c.pcap", frames)))
    names = [f"{host}:{port}" for host, port in (UAC, proxy, UAS)]
    assert call.parties == names
    assert (call.drawn[2].source, call.drawn[3].to) == (names[0], names[0])
    assert call.arrows[2].source == f"{retry[0]}:{retry[1]}", "what was on the wire stays"
    assert call.record().aliases == {f"{retry[0]}:{retry[1]}": names[0]}


def test_fragments_are_joined_in_any_order(tmp_path: Path) -> None:
    body = "a=padding\r\n" * 300
    large = udp(message("INVITE sip:bob@b SIP/2.0", "1 INVITE", body=body))
    cuts = [large[at : at + 1400] for at in range(0, len(large), 1400)]
    frames = [
        frame(ip(part, UAC[0], UAS[0], 17, id=7, mf=int(at < len(cuts) - 1), offset=at * 1400))
        for at, part in enumerate(cuts)
    ]
    random.Random(1).shuffle(frames)
    [call] = calls(read(pcap(tmp_path / "c.pcap", frames)))
    assert call.arrows[0].text.endswith(body)


@pytest.mark.parametrize("seed", range(8))
def test_segments_of_tcp_are_joined(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stream = b"\r\n\r\n" + INVITE + ACK + INVITE.replace(b"a@b", b"c@d")
    begin = 0xFFFFFF00
    frames, at = [tcp(b"", begin - 1, dpkt.tcp.TH_SYN)], 0
    pieces = []
    while at < len(stream):
        size = rng.randint(1, 200)
        pieces.append(tcp(stream[at : at + size], begin + at, dpkt.tcp.TH_ACK))
        at += size
    # some come twice, and neighbours change places
    pieces += rng.sample(pieces, 3)
    for index in range(0, len(pieces) - 1, 2):
        if rng.random() < 0.5:
            pieces[index], pieces[index + 1] = pieces[index + 1], pieces[index]
    found = calls(read(pcap(tmp_path / "c.pcap", frames + pieces)))
    assert [(one.call_id, [arrow.summary for arrow in one.arrows]) for one in found] == [
        ("a@b", ["INVITE sip:bob@b", "ACK sip:bob@b"]),
        ("c@d", ["INVITE sip:bob@b"]),
    ]
    assert not any(arrow.again for one in found for arrow in one.arrows)


def test_a_connection_that_was_up_before_is_read_from_the_next_message(tmp_path: Path) -> None:
    frames = [tcp(b"rest of something\r\n\r\n", 100, 16), tcp(INVITE, 121, 16)]
    [call] = calls(read(pcap(tmp_path / "c.pcap", frames)))
    assert [one.summary for one in call.arrows] == ["INVITE sip:bob@b"]


def test_other_packets_are_passed_over_and_a_cut_file_is_read_to_its_end(tmp_path: Path) -> None:
    frames = [b"", b"\x00" * 20, frame(ip(udp(b"\x80" * 172), UAC[0], UAS[0], 17)), *datagrams(*CALL)]
    path = pcap(tmp_path / "c.pcap", frames)
    cut = path.read_bytes()[:-30]
    path.write_bytes(cut)
    packets = Packets()
    found = list(read(path, packets))
    assert [one.data for one in found] == [data for data, _ in CALL[:4]]
    # the first has nothing, the last not everything
    assert packets.seen == len(frames) and packets.cut == 2


def test_any_bytes_are_no_crash(tmp_path: Path) -> None:
    rng = random.Random(5)
    frames = datagrams(*CALL)
    broken = []
    for _ in range(400):
        one = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 6)):
            one[rng.randrange(len(one))] = rng.randrange(256)
        broken.append(bytes(one[: rng.randint(0, len(one))]))
    for call in calls(read(pcap(tmp_path / "c.pcap", broken))):
        text.lines(call.arrows)


@pytest.mark.parametrize(
    ("statuses", "failures"),
    [
        (["401 Unauthorized"], ["REGISTER: 401"]),
        (["486 Busy Here"], ["REGISTER: 486"]),
        (["100 Trying"], ["REGISTER: no final response"]),
        ([], ["REGISTER: no final response"]),
        (["302 Moved", "200 OK"], ["REGISTER: 302"]),
        (["200 OK"], []),
    ],
)
def test_which_calls_failed(tmp_path: Path, statuses: list[str], failures: list[str]) -> None:
    sent = [(message("REGISTER sip:b SIP/2.0", "1 REGISTER"), True)]
    sent += [(message(f"SIP/2.0 {one}", "1 REGISTER"), False) for one in statuses]
    [call] = calls(read(pcap(tmp_path / "c.pcap", datagrams(*sent))))
    assert call.failures == failures


def test_a_challenge_that_is_answered_is_no_failure(tmp_path: Path) -> None:
    sent = [
        (message("REGISTER sip:b SIP/2.0", "1 REGISTER"), True),
        (message("SIP/2.0 401 Unauthorized", "1 REGISTER"), False),
        (message("REGISTER sip:b SIP/2.0", "2 REGISTER"), True),
        (message("SIP/2.0 200 OK", "2 REGISTER"), False),
    ]
    [call] = calls(read(pcap(tmp_path / "c.pcap", datagrams(*sent))))
    assert call.failures == []


@pytest.mark.parametrize(
    "line",
    [
        'Authorization: Digest username="u", response="SECRET"',
        "Authorization: Digest username=u, response=SECRET, nc=1",
        "Proxy-Authorization: Basic SECRET",
        "authorization : Bearer SECRET",
        "To: <sip:alice:SECRET@b>",
        "Authorization: Basic\r\n SECRET",
        'Authorization: Digest username="a", response="SECRET\\"SECRET"',
        'Authorization: Digest username="a", auts="SECRET"',
        'WWW-Authenticate: Digest nonce="n", ik="SECRET", ck="SECRET"',
        'Authentication-Info: rspauth="SECRET"',
        "Refer-To: <sip:c@h?Authorization=Digest%20response=SECRET>",
        "Contact: <sip:u;password=SECRET@h>",
        "X-Token: a\r\n\tSECRET",
        "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:SECRET|2^20",
        "a=crypto:2 F8_128_HMAC_SHA1_80 inline:SECRET|2^20|1:4;inline:SECRET|2^20|2:4",
        "a=key-mgmt:mikey SECRET",
        "a=acap:1 crypto:1 AES_CM_128_HMAC_SHA1_80 inline:SECRET",
        "a=acap:2 key-mgmt:mikey SECRET",
        "a=pcfg:1 a=crypto:1 inline:SECRET",
        "a=ice-pwd:SECRET",
        "<password>SECRET</password>",
    ],
)
def test_credentials_are_hidden(line: str) -> None:
    shown = hidden(f"X: 1\r\n{line}\r\nCSeq: 1 BYE\r\n\r\n".encode())
    assert b"SECRET" not in shown
    assert b"(hidden)" in shown and b"CSeq: 1 BYE" in shown


@pytest.mark.parametrize(
    "line",
    ["Content-Disposition: inline", "Session-Expires: 90", "a=ice-ufrag:x", "Security-Client: ipsec-3gpp"],
)
def test_what_is_no_secret_is_shown(line: str) -> None:
    whole = f"X: 1\r\n{line}\r\nCSeq: 1 BYE\r\n\r\n".encode()
    assert hidden(whole) == whole


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_packet_that_is_cut_blames_nobody(
    transport: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ack = dpkt.tcp.TH_ACK
    if transport == "udp":
        frames = datagrams((INVITE, True), (RINGING, False), (OK, False))
    else:
        parts = [(INVITE, 1, True), (RINGING, 1, False), (OK, 1 + len(RINGING), False)]
        frames = [
            tcp(data, seq, ack, *ends)
            for data, seq, forth in parts
            for ends in [(UAC, UAS) if forth else (UAS, UAC)]
        ]
    whole = pcap(tmp_path / "whole.pcap", frames)
    packets = Packets()
    assert len(list(read(whole, packets))) == 3 and packets.cut == 0
    for keep in (len(frames[-1]) - 40, 60, 20):
        path = pcap(tmp_path / f"{keep}.pcap", [*frames[:-1], frames[-1][:keep]])
        assert app.call(["sip", "ladder", str(path)]) == 0
        shown = capsys.readouterr()
        assert "truncated packets: 1" in shown.err and "may be in a truncated packet" in shown.out
        assert "no final response" not in shown.out and "200 OK" not in shown.out
        assert app.call(["sip", "ladder", str(path), "--failed"]) != 0
        assert "no call failed" in capsys.readouterr().err


def secret_capture(tmp_path: Path) -> Path:
    given = 'Digest username="u", response="0123secret"'
    sent = [(message("REGISTER sip:u:hush@b SIP/2.0", "1 REGISTER", Authorization=given), True), *CALL]
    return pcap(tmp_path / "c.pcap", datagrams(*sent))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, html = str(secret_capture(tmp_path)), tmp_path / "page.html"
    assert app.call(["sip", "ladder", path, "--messages"]) == 0
    shown = capsys.readouterr().out
    assert "REGISTER sip:u:(hidden)@b" in shown and "v=0" in shown
    assert app.call(["sip", "ladder", path, "--json"]) == 0
    document = capsys.readouterr().out
    assert json.loads(document)["calls"][0]["repeated"] == 1
    assert app.call(["sip", "ladder", path, "--html", str(html)]) == 0
    drawn = html.read_text()
    assert drawn.count('href="#call-0-') == 6 and 'id="call-0-5"' in drawn
    assert all(word not in shown + document + drawn for word in ("0123secret", "hush"))
    assert "인증 정보는" in drawn


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--call-id", "zzz"], "no Call-ID"),
        (["--failed", "--call-id", "a@b"], "no call failed"),
        (["--limit", "0"], "--limit"),
        (["--follow", "--failed"], "--failed is of a capture that is whole"),
    ],
)
def test_what_cannot_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    path = pcap(tmp_path / "c.pcap", datagrams(*CALL))
    assert app.call(["sip", "ladder", str(path), *arguments]) == 104
    assert said in capsys.readouterr().err


def test_files_that_are_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    for content in (b"", b"hello", b"\xd4\xc3\xb2\xa1" + b"\xff" * 8):
        path.write_bytes(content)
        with pytest.raises(Error, match="no capture") as raised:
            list(read(path))
        assert raised.value.code == "ND-104-71"
    empty = io.BytesIO()
    dpkt.pcap.Writer(empty, linktype=147)
    path.write_bytes(empty.getvalue())
    with pytest.raises(Error, match="link type 147"):
        list(read(path))


def test_a_page_shows_what_a_server_wrote_as_text(tmp_path: Path) -> None:
    evil = message("SIP/2.0 200 <script>alert(1)</script>", "1 INVITE", call_id="<img src=x>")
    [call] = calls(read(pcap(tmp_path / "c.pcap", datagrams((evil, False)))))
    drawn = page.render("c.pcap", [call.record()])
    assert "<script>alert" not in drawn and "<img src=x>" not in drawn


def chunks(data: bytes) -> dict[int, bytes]:
    """The chunks of a HEP version 3 packet, by type."""
    assert data[:4] == b"HEP3" and int.from_bytes(data[4:6]) == len(data)
    found, at = {}, 6
    while at < len(data):
        vendor, kind, length = struct.unpack_from("!HHH", data, at)
        assert vendor == 0 and length >= 6
        found[kind] = data[at + 6 : at + length]
        at += length
    assert at == len(data)
    return found


def test_messages_are_exported_by_hep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pcap(tmp_path / "c.pcap", datagrams(*CALL))
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        where = f"127.0.0.1:{server.getsockname()[1]}"
        assert app.call(["sip", "ladder", str(path), "--hep", where]) == 0
        received = [chunks(server.recv(65535)) for _ in CALL]
    assert "5 messages" in capsys.readouterr().err
    assert [one[15] for one in received] == [data for data, _ in CALL]
    third = received[2]
    assert (third[1], third[2], third[11]) == (b"\x02", b"\x11", b"\x01")
    assert (third[3], third[4]) == (address(UAS[0]), address(UAC[0]))
    assert (int.from_bytes(third[7]), int.from_bytes(third[8])) == (UAS[1], UAC[1])
    assert int.from_bytes(third[9]) == 1_700_000_000
    assert abs(int.from_bytes(third[10]) - 200_000) < 10
    assert third[17] == b"a@b"
    six = chunks(hep.packet("[::1]:5060", "[::2]:5061", "tcp", 1.5, b"x", "c"))
    assert (six[1], six[2], six[6][-1]) == (b"\x0a", b"\x06", 2)
    assert app.call(["sip", "ladder", str(path), "--hep", "nowhere"]) == 104


def test_lower_case_and_folded_header_fields_are_read(tmp_path: Path) -> None:
    answer = OK.replace(b"SIP/2.0 200", b"sip/2.0 200", 1).replace(b"Call-ID: ", b"i \t:\r\n  ")
    assert answer != OK
    packets = datagrams((INVITE.replace(b" SIP/2.0", b" sip/2.0", 1), True), (answer, False))
    [call] = calls(read(pcap(tmp_path / "c.pcap", packets)))
    assert [one.summary for one in call.arrows] == ["INVITE sip:bob@b", "200 OK (INVITE)"]
    assert call.call_id and call.failures == []


def test_a_capture_that_grows_is_drawn_as_it_grows(tmp_path: Path) -> None:
    whole = pcap(tmp_path / "whole.pcapng", datagrams(*CALL), ng=True).read_bytes()
    path, drawn = tmp_path / "c.pcapng", list[str]()

    class Written(io.FileIO):
        """The file, of which each look at its end finds 100 bytes more."""

        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            found = super().read(size)
            if not found and (at := path.stat().st_size) < len(whole):
                with path.open("ab") as more:
                    more.write(whole[at : at + 100])
                lengths.append(len(drawn))
            return found

    lengths: list[int] = []
    path.touch()
    ladder = follow.Ladder((), 1, drawn.append)
    file = follow.GrowingFile(Written(path), lambda: path.stat().st_size == len(whole))
    for one in follow.messages(file, "c", Packets()):
        ladder.message(one)
    assert drawn[0] == "a@b" and drawn[2:] == text.lines(calls(read(tmp_path / "whole.pcapng"))[0].arrows)[1:]
    # lines came while the file was growing
    assert sorted(set(lengths)) == [0, 3, 4, 5, 6], lengths


def test_a_followed_ladder_has_the_first_calls_of_each_method() -> None:
    drawn: list[str] = []
    ladder = follow.Ladder((), 1, drawn.append)
    sent = [("REGISTER", "r1"), ("REGISTER", "r2"), ("INVITE", "i1"), ("INVITE", "i2"), ("REGISTER", "r1")]
    for at, (method, name) in enumerate(sent):
        data = message(f"{method} sip:b SIP/2.0", f"1 {method}", call_id=name)
        ladder.message(Message(float(at), "10.0.0.1:5060", "10.0.0.2:5060", "udp", data))
    # a head wherever another call comes between
    assert [line for line in drawn if line in ("r1", "r2", "i1", "i2")] == ["r1", "i1", "r1"]
    assert sum("REGISTER" in line for line in drawn) == 2
    assert sum("INVITE" in line for line in drawn) == 1


def test_only_wanted_calls_are_followed() -> None:
    drawn: list[str] = []
    ladder = follow.Ladder(("i2",), 5, drawn.append)
    for name in ("i1", "i2"):
        data = message("INVITE sip:b SIP/2.0", "1 INVITE", call_id=name)
        ladder.message(Message(0.0, "10.0.0.1:5060", "10.0.0.2:5060", "udp", data))
    assert drawn[0] == "i2" and len(drawn) == 3


def test_a_block_of_any_length_ends_a_capture_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    path.write_bytes(
        pcap(tmp_path / "w", datagrams(*CALL), ng=True).read_bytes() + b"\6\0\0\0\xff\xff\xff\xff"
    )
    with path.open("rb") as raw:
        found = list(follow.messages(follow.GrowingFile(raw, lambda: False), "c", Packets()))
    assert len(found) == len(CALL)


@pytest.mark.parametrize("own", ["token", "tokens"])
@pytest.mark.parametrize("listens", [False, True])
def test_a_followed_run_has_its_own_calls_alone_unless_anybody_may_call(
    listens: bool, own: str, tmp_path: Path
) -> None:
    token, of_others = "0123456789abcdef", "fedcba9876543210"
    names = [f"{0:016x}{of_others}@netdyno", f"{0:016x}{token}@netdyno", "1-2@sipp"]
    sent = [(message("INVITE sip:b SIP/2.0", "1 INVITE", call_id=name), True) for name in names]
    pcap(tmp_path / "capture.pcapng", datagrams(*sent), ng=True)
    # of a fleet, each host has one
    known = {"token": token} if own == "token" else {"token": "1" * 16, "tokens": ["1" * 16, token]}
    plan = {"id": "r", "groups": [{"name": "calls"} | known]}
    begun = [{"event": "log", "line": "run r"}, {"event": "start", "plan": plan}]
    # the last line is under way
    text = "".join(json.dumps(one) + "\n" for one in begun) + '{"event": "st'
    (tmp_path / "events.jsonl").write_text(text)
    model = {"sip": {"port": 5070} if listens else {}}
    (tmp_path / "profile.json").write_text(json.dumps({"groups": [{"model": model}]}))
    drawn: list[str] = []
    assert follow.run(tmp_path, lambda: True, 3, 10, drawn.append)
    assert [name for name in names if name in drawn] == (names if listens else names[1:])
