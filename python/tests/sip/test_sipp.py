"""SIPp scenarios: what they become, and what is refused by line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.importer import xml as importer_xml
from netdyno.sip import scenario
from netdyno.sip.sipp import controllers, source
from netdyno.sip.sipp.convert import Converted, convert


def read(data: bytes, name: str) -> importer_xml.Element:
    return importer_xml.read(data, name, source.SCENARIO)


HEAD = '<?xml version="1.0" encoding="ISO-8859-1" ?>\n<!DOCTYPE scenario SYSTEM "sipp.dtd">\n'


def made(inside: str) -> Converted:
    """The scenario of elements; the first is in line 4."""
    return convert(read(f'{HEAD}<scenario name="x">\n{inside}\n</scenario>'.encode(), "x.xml"), "x.xml")


def refused(inside: str) -> Error:
    with pytest.raises(Error) as raised:
        made(inside)
    assert raised.value.code == "ND-104-73"
    return raised.value


def send(start: str, *fields: str, body: str = "", more: str = "") -> str:
    lines = [start, "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]", *fields]
    return f"<send {more}><![CDATA[\n\n  " + "\n  ".join([*lines, "", body]) + "\n]]></send>"


INVITE = send("INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0", "From: a <sip:sipp@[local_ip]>;tag=1")
ACK = send("ACK [next_url] SIP/2.0", "[routes]")
BYE = send("BYE [next_url] SIP/2.0", "[last_To:]")
OK = '<recv response="200" rrs="true" rtd="true" crlf="true"/>'


def test_a_call() -> None:
    optional = "".join(f'<recv response="{code}" optional="true"/>' for code in (100, 180, 183))
    call = made(INVITE + optional + OK + ACK + '<pause milliseconds="200"/>' + BYE + OK)
    assert (call.user, call.callee, call.answers) == ("sipp", "service", False)
    assert call.steps == [
        {"send": {"method": "INVITE"}},
        {"expect": {"status": "200"}},
        {"send": {"method": "ACK"}},
        {"pause": "200ms"},
        {"send": {"method": "BYE"}},
        {"expect": {"status": "200"}},
    ]


def test_what_of_a_message_is_kept() -> None:
    fields = [
        "Call-ID: [call_id]", "CSeq: [cseq] MESSAGE", "Contact: <sip:x>", "Max-Forwards: 70", "X-Call: [call_number]",
        "s: {hello} [$word]", "Content-Type: text/html", "Content-Length: [len]",
    ]  # fmt: skip
    [step] = made(send("MESSAGE tel:+1-201 SIP/2.0", *fields, body="<b>[field1]</b>")).steps
    assert step == {
        "send": {
            "method": "MESSAGE",
            "uri": "tel:+1-201",
            "headers": {"X-Call": "{seq}", "Subject": "{{hello}} {response.word}"},
            "body": "<b>{fields.field1}</b>",
            "content_type": "text/html",
        }
    }


@pytest.mark.parametrize(
    ("uri", "callee", "kept"),
    [
        ("sip:[service]@[remote_ip]:[remote_port]", "service", None),
        ("sip:bob@[remote_ip]", "bob", None),
        ("sip:[remote_ip]:[remote_port]", None, None),
        ("sip:bob@example.net", None, "sip:bob@example.net"),
        ("sip:[field0]@[remote_ip]:[remote_port]", "{fields.field0}", None),
    ],
)
def test_request_uris(uri: str, callee: str | None, kept: str | None) -> None:
    found = made(send(f"OPTIONS {uri} SIP/2.0"))
    assert (found.callee, found.steps[0]["send"].get("uri")) == (callee, kept)


def test_a_server_side_registers_and_answers_until_the_end() -> None:
    answer = send(
        "SIP/2.0 200 OK", "[last_Via:]", "[last_To:];tag=1", "Content-Type: application/sdp", body="v=0"
    )
    found = made(
        '<recv request="INVITE"/>' + answer + '<recv request="ACK" optional="true"/><recv request="BYE"/>'
    )
    assert found.answers and found.callee is None
    inner = found.steps[2]["repeat"]
    assert inner["count"] == 0
    assert inner["steps"][:2] == [
        {"expect": {"request": "INVITE"}},
        {"answer": {"status": 200, "reason": "OK", "sdp": True}},
    ]
    # the BYE may come without the ACK
    assert inner["steps"][2] == {
        "expect_any": [{"request": "ACK", "then": "sipp-1-1"}, {"request": "BYE", "then": "sipp-1-2"}]
    }
    assert inner["steps"][4] == {"expect_any": [{"request": "BYE", "then": "sipp-1-2"}]}


def test_branches() -> None:
    ereg = '<action><ereg regexp="a(b)" search_in="hdr" header="From: " check_it="true" assign_to="1,word"/></action>'
    found = made(
        INVITE
        + '<recv response="403" optional="true" next="9"/>'
        + f'<recv response="200" next="9" test="word" timeout="500" ontimeout="9">{ereg}</recv>'
        + '<nop next="9" chance="0.25"/><label id="9"/>'
    ).steps
    capture = {
        "v1": {"header": "From", "regex": "a(b)", "group": 0, "required": True},
        "word": {"header": "From", "regex": "a(b)", "group": 1},
    }
    assert found[1]["expect_any"] == [
        {"status": "403", "then": "sipp-9"},
        {"status": "200", "timeout": "500ms", "on_timeout": "sipp-9", "capture": capture, "then": "sipp-1-2"},
    ]
    assert found[2:] == [
        {"label": "sipp-1-2"},
        {"goto": {"label": "sipp-9", "given": "word"}},
        {"goto": {"label": "sipp-9", "chance": 0.25}},
        {"label": "sipp-9"},
    ]


def test_challenges_and_acks_to_failures_need_no_step() -> None:
    challenge = '<recv response="407" auth="true"/>' + ACK
    again = send("INVITE sip:[service]@[remote_ip] SIP/2.0", "[authentication username=u password=p]")
    found = made(INVITE + challenge + again + '<recv response="486"/>' + ACK)
    assert found.authenticates
    assert found.steps == [{"send": {"method": "INVITE"}}, {"expect": {"status": "486"}}]


@pytest.mark.parametrize(
    ("inside", "line", "said"),
    [
        ("\n<sendCmd/>", 5, "3PCC"),
        ("<dance/>", 4, "unknown"),
        (
            INVITE + '\n<recv response="200">\n<action><exec rtp_stream="a.wav"/></action></recv>',
            None,
            "media",
        ),
        ('<nop><action><exec command="rm -rf /"/></action></nop>', 4, "this action"),
        ('<recv request="DUMMY"/>', 4, "DUMMY is no method"),
        ('<recv request="INVITE|OPTIONS" regexp_match="true"/>', 4, "no status"),
        ('<nop><action><exec play_pcap_audio="none.pcap"/></action></nop>', 4, "none.pcap is not there"),
        ('<recv response="200" optional="true"/>' + '<recv response="x"/>', 4, "no status"),
        (INVITE + '<recv response="200" optional="true"/>', None, "is not optional"),
        ('<pause distribution="uniform" min="1" max="2"/>', 4, "distribution"),
        (send("OPTIONS sip:a SIP/2.0", "X: [media_port_x]"), 4, "media_port_x"),
        (INVITE + '<recv response="200" next="7"/>', None, "no label is called '7'"),
        ('<recv response="401" auth="true"/>', 4, "[authentication]"),
        ("", 3, "nothing to play"),
    ],
)
def test_what_cannot_be_played_is_named_by_line(inside: str, line: int | None, said: str) -> None:
    error = refused(inside)
    assert said in error.what, error.what
    assert error.at and error.at.startswith("x.xml:") and "<" in error.at
    assert line is None or error.at.startswith(f"x.xml:{line} "), error.at


def test_a_scenario_that_registers_and_calls_has_one_call_id() -> None:
    register = send("REGISTER sip:a SIP/2.0", "Expires: 300")
    found = made(
        register + OK + INVITE + '<recv response="403" optional="true" next="1"/>' + OK + "<label id='1'/>"
    )
    assert found.steps[0]["send"]["dialog"] == "call" and found.steps[1]["expect"]["dialog"] == "call"
    assert {one["dialog"] for one in found.steps[3]["expect_any"]} == {"call"}
    # a registration alone is one as any
    assert "dialog" not in made(register + OK).steps[0]["send"]


def test_who_begins_with_a_registration_is_called_directly() -> None:
    answer = send("SIP/2.0 200 OK", "[last_Via:]")
    for request in ("REGISTER", "INVITE"):
        text = f'<scenario><recv request="{request}"/>{answer}</scenario>'
        found = convert(read(text.encode(), "x.xml"), "x.xml", direct=request == "INVITE")
        assert list(found.steps[0]) == ["repeat"], found.steps
    anything = made(f'<recv request=".*" regexp_match="true"/>{answer}')
    assert anything.steps[2]["repeat"]["steps"][0] == {"expect": {"request": "any"}}


def test_a_label_between_receives_is_no_end_of_their_group() -> None:
    answer = send("SIP/2.0 200 OK", "[last_Via:]")
    optional = '<recv request="ACK" optional="true"/><label id="2"/><recv request="BYE"/>'
    inner = made(f'<recv request="INVITE"/>{answer}{optional}').steps[2]["repeat"]["steps"]
    assert inner[2:] == [
        {"expect_any": [{"request": "ACK", "then": "sipp-1-1"}, {"request": "BYE", "then": "sipp-1-2"}]},
        {"label": "sipp-1-1"},
        {"label": "sipp-2"},
        {"expect_any": [{"request": "BYE", "then": "sipp-1-2"}]},
        {"label": "sipp-1-2"},
    ]


def test_a_call_plays_its_first_recording(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"")
    xml, offer = tmp_path / "a.xml", "m=audio [auto_media_port] RTP/AVP 8 101"
    invite = send("INVITE sip:b@[remote_ip] SIP/2.0", "Content-Type: application/sdp", body=offer)
    play = "<nop><action><exec play_pcap_audio='a.pcap'/><exec play_pcap_audio='b.pcap'/></action></nop>"
    xml.write_text(f"<scenario>{invite}{OK}{ACK}{play}</scenario>")
    found = scenario.read(xml)
    assert found.media == {"codec": "pcma", "source": {"file": str(tmp_path / "a.pcap")}}
    assert "one recording" in found.notes[-1]


def controller(*steps: str) -> Converted:
    text = f"<scenario>{''.join(steps)}</scenario>"
    return convert(read(text.encode(), "x.xml"), "x.xml", commands=True)


BODY_OF = '<action><ereg regexp="Content-Type:.*" search_in="msg" assign_to="1"/></action>'
TAKES = f'<recv response="200">{BODY_OF}</recv>'
GIVES = "<sendCmd>Call-ID: [call_id]\n[$1]</sendCmd>"
GETS = f"<recvCmd>{BODY_OF}</recvCmd>"


def with_body(start: str) -> str:
    return f"<send><![CDATA[\n{start}\nVia: x\n[$1]\n\n]]></send>"


def test_two_controllers_are_one_scenario_with_two_dialogs() -> None:
    calls = controller(
        INVITE, TAKES, GIVES, GETS.replace('"1"', '"2"'), with_body("ACK a SIP/2.0").replace("$1", "$2")
    )
    called = controller(
        GETS,
        with_body("INVITE sip:b@[remote_ip] SIP/2.0"),
        TAKES.replace('"1"', '"3"'),
        ACK,
        GIVES.replace("$1", "$3"),
    )
    steps = controllers.merge(calls, called, "x.xml", ("sip:a@h", "sip:b@h")).steps
    assert [next(iter(one.values()))["dialog"] for one in steps] == ["a", "a", "b", "b", "b", "a"]
    assert steps[0]["send"]["uri"] == "sip:a@h" and steps[2]["send"]["uri"] == "sip:b@h"
    assert steps[1]["expect"]["capture"] == {"a_v1": {"body": True}}
    sdp = {"content_type": "application/sdp"}
    assert steps[2]["send"].items() >= (sdp | {"body": "{response.a_v1}"}).items()
    assert steps[5]["send"].items() >= (sdp | {"body": "{response.b_v3}"}).items()


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((INVITE, OK, GETS), (GETS, INVITE, OK), "both controllers wait"),
        (('<recv request="INVITE"/>', send("SIP/2.0 200 OK")), (INVITE, OK), "that is called"),
        ((INVITE, OK, GIVES), (GETS, INVITE, OK), "a body alone"),
    ],
)
def test_controllers_that_cannot_be_played_are_refused(
    first: tuple[str], second: tuple[str], said: str
) -> None:
    with pytest.raises(Error, match=said) as raised:
        controllers.merge(controller(*first), controller(*second), "x.xml", ())
    assert raised.value.code == "ND-104-73"


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "sip:a@b"),
        ("--with", "a.xml", "--to", "a@b"),
        ("--with", "a.xml", "--listen"),
        ("--with", "a.xml", "--to", "sip:a", "--to", "sip:b", "--to", "sip:c"),
    ],
)
def test_options_of_two_controllers_are_checked(tmp_path: Path, words: tuple[str, ...]) -> None:
    xml = tmp_path / "a.xml"
    xml.write_text(f"<scenario>{INVITE}{OK}</scenario>")
    given = [str(xml) if word == "a.xml" else word for word in words]
    assert app.call(["sip", "import", str(xml), *given]) == 104


@pytest.mark.parametrize("listen", ["5070", "127.0.0.1:0", "127.0.0.1:x"])
def test_where_to_be_called_is_checked(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["sip", "load", "sip:127.0.0.1", "--scenario", "uas", "--listen", listen]) == 104
    assert "ADDRESS:PORT" in capsys.readouterr().err


BOMB = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no XML"),
        ("<scenario>", "no XML"),
        ("<other/>", "is no SIPp scenario"),
        (f'<!DOCTYPE scenario [<!ENTITY l0 "lol">{BOMB}]><scenario>&l8;</scenario>', "entities"),
        ('<!DOCTYPE scenario [<!ENTITY e SYSTEM "file:///etc/passwd">]><scenario>&e;</scenario>', "entities"),
        ("<scenario>" + "<a>" * 50 + "</a>" * 50 + "</scenario>", "too deep"),
        ("<scenario>" + "<a/>" * 20_000 + "</scenario>", "too many"),
    ],
)
def test_files_that_are_no_scenario(text: str, said: str) -> None:
    with pytest.raises(Error) as raised:
        read(text.encode(), "x.xml")
    assert raised.value.code == "ND-104-73" and said in raised.value.what


def test_a_file_of_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml, inf, output = tmp_path / "a.xml", tmp_path / "a.csv", tmp_path / "a.yaml"
    xml.write_text(
        f"<scenario>{send('OPTIONS sip:[field0]@[remote_ip] SIP/2.0', 'X: [field1]')}{OK}</scenario>"
    )
    inf.write_text('SEQUENTIAL\n#comment\nalice;"x"\nbob\n')
    assert app.call(["sip", "import", str(xml), "--inf", str(inf), "--output", str(output)]) == 0
    assert (tmp_path / "fields.csv").read_text() == 'field0,field1\nalice,"""x"""\nbob,\n'
    found = scenario.read(output)
    assert found.callee == "{fields.field0}" and found.table
    assert found.table["fields"] == {"file": str(tmp_path / "fields.csv"), "rows": "message"}
    assert app.call(["sip", "import", str(xml)]) == 104
    inf.write_text("alice\n")
    assert app.call(["sip", "import", str(xml), "--inf", str(inf), "--output", str(output)]) == 104
    assert "SEQUENTIAL" in capsys.readouterr().err
    with pytest.raises(Error, match="CSV"):
        scenario.read(xml)


@pytest.mark.parametrize(
    ("line", "cells", "user", "password", "columns"),
    [
        (
            "[authentication username=[field0] password=[field2]]",
            "alice;example.net;geheim",
            None,
            "{fields.field2}",
            "field0,field1,field2\nalice,example.net,geheim\n",
        ),
        (
            "[field2]",
            "alice;example.net;[authentication username=alice-1 password=geheim]",
            "{fields.field2_username}",
            "{fields.field2_password}",
            "field0,field1,field2_username,field2_password\nalice,example.net,alice-1,geheim\n",
        ),
    ],
)
@pytest.mark.parametrize("challenged", [False, True])
def test_accounts_of_a_csv_file(
    tmp_path: Path, line: str, cells: str, user: str | None, password: str, columns: str, challenged: bool
) -> None:
    xml, inf, output = tmp_path / "a.xml", tmp_path / "a.csv", tmp_path / "a.yaml"
    start = "REGISTER sip:[remote_ip] SIP/2.0", "From: <sip:[field0]@[field1]>;tag=1"
    first = send(*start) + '<recv response="401" auth="true"/>' if challenged else ""
    xml.write_text(f"<scenario>{first}{send(*start, line)}{OK}</scenario>")
    inf.write_text(f"SEQUENTIAL\n{cells}\n")
    assert app.call(["sip", "import", str(xml), "--inf", str(inf), "--output", str(output)]) == 0
    assert (tmp_path / "fields.csv").read_text() == columns
    found = scenario.read(output)
    assert (found.user, found.auth_user, found.password) == ("{fields.field0}", user, password)
    # each user agent keeps its account, from its registration to its calls
    assert found.table and found.table["fields"]["rows"] == "device"


def test_own_from_and_sdp_are_noted_by_line() -> None:
    offer = "m=audio [media_port] RTP/AVP 0"
    own = send(
        "INVITE sip:b@[remote_ip] SIP/2.0",
        "From: <sip:a@example.net>",
        "Content-Type: application/sdp",
        body=offer,
    )
    notes = made(own + OK).notes
    assert [one.partition(":")[0] for one in notes] == ["line 4 <send>"] * 2
    assert "not example.net: see --domain" in notes[0] and "SDP is not sent" in notes[1]
    assert not made(INVITE + OK).notes


def test_the_command_prints_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml = tmp_path / "a.xml"
    xml.write_text(f"<scenario>{INVITE}{OK}{ACK}<timewait milliseconds='4000'/></scenario>")
    assert app.call(["sip", "import", str(xml)]) == 0
    said = capsys.readouterr()
    document: dict[str, Any] = yaml.safe_load(said.out)
    assert document["callee"] == "service" and len(document["steps"]) == 3
    assert "line 4 <timewait>" in said.err.replace("\n", " ") or "<timewait>" in said.err
    assert scenario.read(xml).steps == document["steps"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{steps: 3}", "ND-104-04"),
        ("{steps: [], who: x}", "ND-104-02"),
        ("{steps: [], user: 3}", "ND-104-04"),
        ("3", "ND-104-04"),
    ],
)
def test_scenario_files_of_our_own_are_checked(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(Error) as raised:
        scenario.read(path)
    assert raised.value.code == code
    assert source.TABLE == "fields"


@pytest.mark.parametrize("seed", range(4))
def test_any_file_is_converted_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    whole = f"{HEAD}<scenario>{INVITE}<recv response='180' optional='true' next='1'/>{OK}{ACK}{BYE}<label id='1'/></scenario>"
    for _ in range(500):
        data = bytearray(whole.encode())
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randint(1, 20)]
                case 2:
                    data[at:at] = rng.choice([b"<recv/>", b"]]>", b"&", b'"', b"[", b"<send>", b"\n\n", b"{"])
        try:
            convert(read(bytes(data), "x.xml"), "x.xml")
        except Error as e:
            assert e.code == "ND-104-73", e
