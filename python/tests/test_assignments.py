"""`NAME=VALUE` as people write it: lists, values with commas and spaces, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdyno import assignments
from netdyno.errors import Error


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["a=1,b=2"], {"a": "1", "b": "2"}),
        ([" a = 1 , b = 2 "], {"a": "1", "b": "2"}),
        (["net.ipv4.ip_local_reserved_ports=80,443"], {"net.ipv4.ip_local_reserved_ports": "80,443"}),
        (["ports=80,443,size=3"], {"ports": "80,443", "size": "3"}),
        (["mask=ff,ffffffff", "b=4096 131072 6291456"], {"mask": "ff,ffffffff", "b": "4096 131072 6291456"}),
        (['words="a,b=c",d=1'], {"words": "a,b=c", "d": "1"}),
        (["words='80, 443'"], {"words": "80, 443"}),
        (["ports=,b=1"], {"ports": "", "b": "1"}),
        (["dev.*.qdisc=fq,dev.eth0:1.mtu=9"], {"dev.*.qdisc": "fq", "dev.eth0:1.mtu": "9"}),
        (["a=b=c"], {"a": "b=c"}),
        ([], {}),
    ],
)
def test_settings_are_read(texts: list[str], found: dict[str, str]) -> None:
    assert assignments.read(texts, "--set") == found


@pytest.mark.parametrize("text", ["", "a", "=1", "a b=1", ",a=1", "80,443=1"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(Error, match=r"ND-104-04.*--set") as raised:
        assignments.read([text], "--set")
    assert "NAME=VALUE" in raised.value.fix


def test_a_name_that_comes_twice_is_refused() -> None:
    for texts in (["a=1", "a=2"], ["a=1,a=1"]):
        with pytest.raises(Error, match="ND-104-07"):
            assignments.read(texts, "--set")


VALUES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\"'")) | st.sampled_from(
    ["80,443", "a,b=c", "4096 131072 6291456", "x, y = z", ",", "=", ""]
)


@given(st.dictionaries(st.from_regex(r"[a-z*][a-z0-9_.*:-]{0,12}", fullmatch=True), VALUES, max_size=4))
def test_what_is_written_is_read_again(values: dict[str, str]) -> None:
    texts = [assignments.text(values)] if values else []
    assert assignments.read(texts, "--set") == values


def test_an_option_of_a_workload_is_one_text_and_yaml() -> None:
    found = assignments.options(["seconds=3", "ports=80,443", "args=[a, b]", "load=ab -n 1 a=2,b=3"], "--set")
    assert found == {"seconds": 3, "ports": "80,443", "args": ["a", "b"], "load": "ab -n 1 a=2,b=3"}
    for texts, code in ((["seconds"], "ND-104-04"), (["a=1", "a=2"], "ND-104-07")):
        with pytest.raises(Error, match=code):
            assignments.options(texts, "--set")
