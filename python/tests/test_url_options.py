"""Options of a quick form: one table for the command line, the API and errors; words of other tools."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import netdyno
from netdyno import units
from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment import limits, quick
from netdyno.experiment.url_options import DEFAULTS, OPTIONS, UrlOptions


def test_the_api_has_every_option() -> None:
    known = inspect.signature(netdyno.run).parameters
    assert [one.api for one in OPTIONS.values() if one.api not in known] == []
    assert UrlOptions() == UrlOptions(**DEFAULTS)


def test_an_option_is_named_for_what_it_sets() -> None:
    urls = ["https://h", "mqtt://h"]
    assert quick.option_of(urls, "groups[0].tls.ca") == "--cacert"
    assert quick.option_of(urls, "groups[0].total") == "--requests"
    assert quick.option_of(urls, "groups[0].model.http.requests") == "--count"
    assert quick.option_of(urls, "groups[0].model.http.headers.A") == "--header"
    assert quick.option_of(urls, "groups[1].model.mqtt.payload") == "--data"
    assert quick.option_of(urls, "groups[1].connect_timeout") == "mqtt://h"


def test_a_number_of_requests_has_no_warm_up_and_no_idle_devices() -> None:
    made = quick.profile(["http://192.0.2.1"], UrlOptions(requests=3, devices=10, rate="30/s"))
    (group,) = made["groups"]
    assert (group["total"], group["devices"], made["phases"]["warmup"]) == (3, 3, "0s")
    # each of three devices sends at a third of the rate
    assert group["model"]["http"]["interval"] == "100000000ns"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1m", "1min"),
        ("1m30s", "90s"),
        ("1min5s", "65s"),
        ("1h30m", "90min"),
        ("1s500ms", "1500ms"),
        ("30", "30s"),
    ],
)
def test_times_of_several_units(written: str, read: str) -> None:
    assert units.TIME.text(written, "--duration") == read


@pytest.mark.parametrize("written", ["1s1m", "1s1s", "1m-3s", "1x", "m"])
def test_what_is_no_time(written: str) -> None:
    with pytest.raises(Error):
        units.TIME.text(written, "--duration")


def test_rates_as_other_tools_write_them() -> None:
    assert units.RATE.text("100rps", "--rate") == units.RATE.text("100cps", "--rate") == "100/s"
    with pytest.raises(Error):
        units.RATE.text("100m", "--rate")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("p99<50ms", "delay.response.p99 < 50ms"),
        ("http_req_duration p(95)<50", "delay.response.p95 < 50ms"),
        ("avg <= 3ms", "delay.response.mean <= 3ms"),
        ("errors < 1%", "loss < 1%"),
    ],
)
def test_a_threshold_in_other_words(typed: str, meant: str) -> None:
    profile = quick.profile(["http://192.0.2.1"], UrlOptions())
    with pytest.raises(Error) as caught:
        limits.thresholds([typed], profile)
    assert caught.value.at == f"--threshold {typed!r}"
    assert caught.value.fix == f"Did you mean `{meant}`?"
    assert limits.thresholds([meant], profile)


@pytest.mark.parametrize(
    ("verb", "option", "meant"),
    [("run", "-c", "--devices"), ("run", "--vus", "--devices"), ("run", "--qps", "--rate")],
)
def test_options_of_other_tools(
    verb: str, option: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([verb, "http://192.0.2.1", option, "5"]) == 104
    assert f"Did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["http://192.0.2.1:80/", "./load.yaml"])
def test_a_url_or_a_file_without_a_verb_gets_the_verb(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([typed]) == 104
    assert f"Did you mean `netdyno run {typed}`?" in capsys.readouterr().err


def test_a_certificate_that_is_not_there_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(Error) as caught:
        quick.profile(["https://192.0.2.1"], UrlOptions(cacert=str(tmp_path / "nofile")))
    assert caught.value.exit_code == 104 and caught.value.at.startswith("--cacert ")


@pytest.mark.daemon
def test_a_search_for_a_rate_takes_the_request_options(capsys: pytest.CaptureFixture[str]) -> None:
    typed = [
        "bench",
        "rate",
        "http://192.0.2.1",
        "--rate",
        "100/s",
        "--dry-run",
        "-d",
        "x",
        "-H",
        "A: b",
        "-X",
        "PUT",
    ]
    assert call([*typed, "-u", "a:b"]) == 0
    assert call([*typed, "-t", "x"]) == 104
    assert "cannot use --topic" in capsys.readouterr().err
