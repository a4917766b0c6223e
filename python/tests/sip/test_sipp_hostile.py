"""Scenarios of SIPp that mean harm, or nothing: each is played, or refused with a code, and nothing grows without limit."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdyno.errors import Error
from netdyno.importer.xml import read
from netdyno.sip.sipp.convert import Converted, convert
from netdyno.sip.sipp.source import LARGEST, SCENARIO, load

REFUSED = "ND-104-73"

BOMB = """<?xml version="1.0"?>
<!DOCTYPE scenario [<!ENTITY a "aaaaaaaaaaaaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">]>
<scenario><send>&e;&e;&e;&e;</send></scenario>"""
OUTSIDE = '<!DOCTYPE scenario [<!ENTITY f SYSTEM "file:///etc/passwd">]><scenario><send>&f;</send></scenario>'


def outcome(text: bytes) -> Converted | Error:
    """What is made of a file, or the error that a user sees."""
    try:
        return convert(read(text, "x.xml", SCENARIO), "x.xml")
    except Error as error:
        assert error.code == REFUSED and error.what, error
        return error


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        OUTSIDE,
        '<!DOCTYPE scenario SYSTEM "http://127.0.0.1:1/x.dtd" [<!ENTITY % p "x"> %p;]><scenario/>',
        "<scenario>" + "<a>" * 100_000,
        "<scenario>" + "<nop>" * 10_000 + "</nop>" * 10_000 + "</scenario>",
        "<scenario " + " ".join(f'a{n}="x"' for n in range(50_000)) + "/>",
        f'<scenario><pause milliseconds="{"9" * 5000}"/></scenario>',
        f'<scenario><recv response="{"9" * 5000}"/></scenario>',
        f'<scenario><recv response="200" timeout="{"9" * 400}"/></scenario>',
        '<scenario><recv response="200" chance="1e400" next="1"/><label id="1"/></scenario>',
        f"<scenario><send><![CDATA[{'(' * 200_000}]]></send></scenario>",
        "<scenario>" + "<nop/>" * 100_000 + "</scenario>",
        "\x00\x01\x02",
        "",
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_means_harm_is_refused(text: str) -> None:
    began = time.process_time()
    found = outcome(text.encode())
    assert isinstance(found, Error), found
    assert len(str(found.what)) < 10_000 and "root:" not in str(found.what)
    assert time.process_time() - began < 30


@pytest.mark.slow
def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    """Within 1 GiB of address space."""
    bomb = tmp_path / "bomb.xml"
    bomb.write_text(BOMB)
    code = "import sys; from pathlib import Path; from netdyno.sip.sipp import source; source.load(Path(sys.argv[1]))"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    done = subprocess.run(
        [sys.executable, "-c", code, str(bomb)], preexec_fn=limit, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "MemoryError" not in done.stderr, done.stderr
    assert REFUSED in done.stderr, done.stderr


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.xml"
    large.write_bytes(b"<scenario>" + b" " * LARGEST + b"</scenario>")
    with pytest.raises(Error) as refused:
        load(large)
    assert refused.value.code.startswith("ND-")


NAMES = st.sampled_from(
    [
        "send",
        "recv",
        "pause",
        "nop",
        "label",
        "action",
        "ereg",
        "exec",
        "log",
        "timewait",
        "sendCmd",
        "recvCmd",
        "assign",
        "test",
        "Reference",
        "init",
        "x",
    ]
)
KEYS = st.sampled_from(
    [
        "response",
        "request",
        "optional",
        "next",
        "timeout",
        "ontimeout",
        "chance",
        "milliseconds",
        "distribution",
        "regexp",
        "search_in",
        "header",
        "check_it",
        "assign_to",
        "id",
        "variables",
        "value",
        "retrans",
        "rrs",
        "auth",
        "rtd",
        "lost",
        "regexp_match",
        "play_pcap_audio",
        "test",
        "x",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        ["", "200", "INVITE", "true", "0", "-1", "1e9", "9" * 40, ".*", "(", "[a", "msg", "hdr", "1,2", "[x]"]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
)
TEXTS = st.one_of(
    st.sampled_from(
        [
            "\nINVITE sip:[service]@[remote_ip] SIP/2.0\nTo: <x>\n\n",
            "\nSIP/2.0 200 OK\n[last_Via:]\n\n",
            "\nACK [next_url] SIP/2.0\n[routes]\n\n",
            "[field0 file=x][$1][",
            "\n\n\n",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30),
)


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


@st.composite
def elements(draw: st.DrawFn, depth: int = 0) -> str:
    """An element of SIPp with what its attributes and children should not be."""
    name = draw(NAMES)
    keys = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    written = "".join(f' {key}="{_quoted(value)}"' for key, value in keys.items())
    inner = _quoted(draw(TEXTS)) if draw(st.booleans()) else ""
    if depth < 2:
        inner += "".join(draw(st.lists(elements(depth + 1), max_size=2)))
    return f"<{name}{written}>{inner}</{name}>"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(elements(), max_size=8))
def test_any_elements_are_played_or_refused(inside: list[str]) -> None:
    found = outcome(f"<scenario>{''.join(inside)}</scenario>".encode())
    if isinstance(found, Converted):
        assert found.steps


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(text: bytes) -> None:
    outcome(text)
