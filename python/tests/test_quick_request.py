"""Request options of quick forms: what curl, oha and mosquitto_pub users type becomes a profile, or is refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.experiment import quick, quick_request


def made(url: str, **options: Any) -> dict[str, Any]:
    (group,) = quick.profile([url], quick.UrlOptions(**options))["groups"]
    return group


def params(url: str, **options: Any) -> dict[str, Any]:
    (given,) = made(url, **options)["model"].values()
    return {key: value for key, value in given.items() if key not in ("requests", "count", "path")}


def test_data_is_posted_as_curl_does() -> None:
    assert params("http://h/login", data=("a=1", "b=2")) == {
        "method": "POST",
        "body": "a=1&b=2",
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
    }
    given = params("http://h/x", method="PUT", data=("{}",), header=("content-type: application/json",))
    assert given == {"method": "PUT", "body": "{{}}", "headers": {"content-type": "application/json"}}


def test_braces_are_data_unless_they_are_places() -> None:
    text = '{"t": {"v": 21}, "id": "{device}-{random:8}", "who": "{users.name}", "x": {seq}}'
    assert quick_request.template(text) == (
        '{{"t": {{"v": 21}}, "id": "{device}-{random:8}", "who": "{users.name}", "x": {seq}}}'
    )


def test_data_comes_from_a_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.json").write_text('{"a": 1}\n')
    assert params("mqtt://h", data=(f"@{tmp_path / 'd.json'}",)) == {"payload": '{{"a": 1}}\n'}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin")))
    assert params("mqtt://h", data=("@-",)) == {"payload": "from stdin"}
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    for name, why in (("binary", "UTF-8"), ("absent", "No such file")):
        with pytest.raises(Error, match=why):
            params("mqtt://h", data=(f"@{tmp_path / name}",))


def test_a_publish_is_what_mosquitto_pub_sends() -> None:
    given = params("mqtt://h", topic="a/{device}", data=("21",), qos=2)
    assert given == {"topic": "a/{device}", "payload": "21", "qos": 2}


def test_header_fields_are_checked_as_typed() -> None:
    assert quick_request.headers(["Accept: a:b", "X-Empty;", "x: {y}"]) == {
        "Accept": "a:b", "X-Empty": "", "x": "{{y}}"
    }  # fmt: skip
    for text, why in (("Accept", "NAME: VALUE"), ("Accept:", "has no value")):
        with pytest.raises(Error, match=why):
            quick_request.headers([text])
    with pytest.raises(Error, match="given twice"):
        quick_request.headers(["a: 1", "A: 2"])


def test_certificates_are_for_tls(tmp_path: Path) -> None:
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "c.pem", "c.key"))
    for one in (ca, cert, key):
        Path(one).touch()
    assert made("https://h", cacert=ca)["tls"] == {"ca": ca}
    assert made("mqtts://h", insecure=True)["tls"] == {"insecure": True}
    assert made("https://h", cert=cert, key=key)["tls"] == {"cert": cert, "key": key}


def test_a_user_is_part_of_the_target() -> None:
    assert made("http://h:1/x", user="a@b:p:/?")["target"] == "http://a%40b:p%3A%2F%3F@h:1"
    assert made("mqtt://h", user="only")["target"] == "mqtt://only@h"
    with pytest.raises(Error, match="names a user too"):
        made("http://a:b@h", user="c:d")


@pytest.mark.parametrize(
    ("url", "options", "flag"),
    [
        ("http://h", {"qos": 1}, "--qos"),
        ("http://h", {"topic": "t"}, "--topic"),
        ("http://h", {"insecure": True}, "--insecure"),
        ("http://h", {"cacert": "/ca.pem"}, "--cacert"),
        ("mqtt://h", {"cert": "/c.pem"}, "--cert"),
        ("mqtt://h", {"header": ("a: b",)}, "--header"),
        ("mqtt://h", {"method": "PUT"}, "--method"),
        ("ping://h", {"data": ("x",)}, "--data"),
        ("udp://h:7", {"user": "a:b"}, "--user"),
        ("ping://h", {"connection_per_request": True}, "--connection-per-request"),
    ],
)
def test_an_option_that_no_url_can_use_is_refused(url: str, options: dict[str, Any], flag: str) -> None:
    with pytest.raises(Error) as caught:
        made(url, **options)
    assert (caught.value.code, caught.value.at) == ("ND-104-07", flag)
    assert f"cannot use {flag}" in caught.value.what and "://" in caught.value.fix


def test_of_several_urls_those_use_an_option_that_can() -> None:
    groups = quick.profile(["http://h", "mqtt://h"], quick.UrlOptions(qos=2, data=("x",)))["groups"]
    assert "qos" not in groups[0]["model"]["http"] and groups[0]["model"]["http"]["body"] == "x"
    assert groups[1]["model"]["mqtt"] | {"qos": 2, "payload": "x"} == groups[1]["model"]["mqtt"]
