from __future__ import annotations

import copy
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

from netdyno.core.result import Result
from netdyno.core.wire import PausedInterval, RateChange, SeriesPoint, WorkerUsage
from netdyno.report import (
    charts,
    flows,
    inline,
    opening,
    percentiles,
    tables,
    thresholds,
    verdict_plot,
)
from netdyno.report.legs import leg_view
from netdyno.report.locale import catalogue
from netdyno.report.page import build, environment
from netdyno.report.render import render
from netdyno.report.series import coarsen, in_order, without_stubs
from netdyno.report.series_csv import series_csv
from netdyno.report.studies import render_folder
from netdyno.report.verdict import verdict
from netdyno.stats.metric import GroupMetric

Json = dict[str, Any]


def typed(result: Json, **changes: Any) -> Result:
    return Result.model_validate(result | changes)


def test_one_file_that_names_nothing_outside(page: str) -> None:
    assert len(page.encode()) < 1_500_000
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert not re.search(r"@import|url\((?!data:)", inline.style())
    assert page.count("<script") == 3
    assert 'http-equiv="Content-Security-Policy"' in page
    assert "Copyright (c) 2022 Leon Sorokin" in page


def test_the_same_result_gives_the_same_page(result: Json, flows_csv: str, page: str) -> None:
    assert render(copy.deepcopy(result), flows_csv=flows_csv) == page


def test_verdict_comes_after_validity(result: Json) -> None:
    assert verdict(typed(result)).state == "fail"
    assert verdict(typed(result, verdict="pass", thresholds=[])).state == "pass"
    reason = {"code": "ND-90-02", "group": "web", "what": "late", "value": 31e6, "limit": 10e6}
    said = verdict(typed(result, valid=False, verdict="pass", reasons=[reason]))
    assert said.state == "invalid"
    assert said.points[0].plain().replace("\u202f", " ") == (
        "\u2068web\u2069: generator lateness p99 31.0 ms, 3.1 times the limit of 10 ms."
    )


def test_a_missed_threshold_says_by_how_much(result: Json) -> None:
    missed = [p.plain() for p in verdict(typed(result)).points]
    assert len(missed) == 1
    assert re.search(
        r"request.* delay, 99th percentile: 6\.\d\d\sms, at most 5\sms allowed \(\d\d\s% above\)", missed[0]
    )


@pytest.mark.parametrize(
    ("code", "value", "limit", "text"),
    [("ND-90-01", 0.913, 0.99, "offered 91.3 %"), ("ND-90-03", 0.41, 0.2, "41.0 % of the time; limit 20 %"),
     ("ND-90-04", 12, 0, "12 failures or drops were the generator's own"), ("ND-90-05", 3.2, 10, "took 3.2 s of the 10 s"), ("ND-90-77", 1, 2, "ND-90-77")],
)  # fmt: skip
def test_every_reason_has_its_sentence(
    result: Json, code: str, value: float, limit: float, text: str
) -> None:
    reason = {"code": code, "group": None, "what": "what it says", "value": value, "limit": limit}
    said = verdict(typed(result, valid=False, reasons=[reason]))
    assert text in said.points[0].plain().replace("\u202f", " ")
    assert said.original == ["what it says"]


def test_alike_reasons_are_said_once(result: Json) -> None:
    reasons = [
        {
            "code": "ND-90-01",
            "group": "web",
            "what": "",
            "value": v,
            "limit": 0.99,
            "leg": "a",
            "repetition": i,
        }
        for i, v in enumerate((0.95, 0.42, 0.9))
    ]
    said = verdict(typed(result, valid=False, reasons=reasons, thresholds=[])).points
    # and the remedy
    assert len(said) == 2
    assert "a · web" in said[0].plain()
    assert "42.0" in said[0].plain()
    assert "worst of 3" in said[0].plain()


def test_figures_have_the_limits_that_they_were_judged_by(result: Json) -> None:
    one = typed(result, legs=result["legs"][:1])
    throughput, loss, slow, generator, dut = opening.opening(one).figures
    assert (slow.value.replace("\u202f", " "), slow.mark) == ("6.51 ms", "bad")
    assert slow.limit is not None and slow.limit.plain() == "limit ≤\u00a05\u202fms"
    assert throughput.limit is not None and "sensors" in throughput.limit.plain()
    assert loss.mark == "good"
    assert generator.sort == max(w.cpu for r in one.legs[0].repetitions for w in r.workers)
    series = [
        p.cpu
        for r in one.legs[0].repetitions
        for p in r.dut["mosquitto"].cpu_series
        if r.phases.warmup < p.t <= r.phases.warmup + r.phases.measure
    ]
    assert dut.sort == pytest.approx(sum(series) / len(series))
    assert opening.opening(typed(result, thresholds=[], legs=result["legs"][:1])).figures[2].limit is None


def test_failing_legs_and_thresholds_stand_first(result: Json) -> None:
    turned = typed(result, legs=[*reversed(result["legs"])])
    assert [row[1].sort for row in opening.opening(turned).legs.rows] == ["iot mixed", "fast path"]
    many = typed(result, legs=[result["legs"][1] | {"name": str(i)} for i in range(9)] + result["legs"][:1])
    o = opening.opening(many)
    assert [len(o.legs.rows), len(o.passed.rows)] == [1, 9]
    failed, passed = thresholds.judged(typed(result))
    assert [row[1].sort for row in failed.table.rows] == ["web.delay.request.p99"]
    assert len(passed.table.rows) == len(passed.bullets) == 5


@pytest.mark.parametrize(
    ("metric", "kind", "bound", "unit"),
    [("web.delay.request.p99", "max", 5e6, "ns"), ("sensors.loss", "max", 0.001, "ratio"),
     ("sensors.messages_delivered.rate", "min", 2900, "/s"), ("sensors.errors.timeout", "max", 10, "count"),
     ("web.lateness.p99", "max", 1e6, "ns")],
)  # fmt: skip
def test_the_plot_is_of_what_was_judged(
    result: Json, metric: str, kind: str, bound: float, unit: str
) -> None:
    t = {
        "leg": "iot mixed",
        "metric": metric,
        "bound": bound,
        "kind": kind,
        "value": 1.0,
        "passed": False,
        "n": 2,
    }
    over_time, each = verdict_plot.verdict_plot(typed(result, thresholds=[t])).charts
    assert over_time["limit"]["value"] == each["limit"]["value"] == bound
    assert over_time["unit"] == each["unit"] == unit
    values = over_time["views"][0]["lines"][0]["values"]
    assert len(values) == len(over_time["trial"]["t"])
    reps = typed(result).legs[0].repetitions
    found = [GroupMetric.parse(metric).of(r) for r in reps]
    assert each["views"][0]["lines"][0]["values"] == found
    if metric == "sensors.messages_delivered.rate":
        worst = reps[found.index(min(found))]
        assert values[5] == pytest.approx(
            worst.series[5].groups["sensors"].counts.messages_delivered, rel=1e-5
        )
    if unit == "count":
        # counted from where the phase begins that the limit is of
        assert values[0] is None
        assert values[-1] >= max(found)


def test_what_fails_unasked_is_plotted_too(result: Json) -> None:
    check = {"leg": "iot mixed", "group": "web", "check": "delivery", "value": 0, "limit": 1, "passed": False}
    (one,) = verdict_plot.verdict_plot(typed(result, thresholds=[], checks=[check])).charts
    assert one["title"] == {"t": "Messages per second"}
    # where nothing was judged the main delay is what was measured
    (delay,) = verdict_plot.verdict_plot(typed(result, thresholds=[])).charts
    assert delay["title"]["t"] == "{group}: {what} delay, {stat}"


def test_a_search_opens_with_what_it_found(result: Json) -> None:
    trial = {
        "number": 1,
        "leg": "64B@load=20000",
        "load": 20000,
        "seconds": 1,
        "sent": 20000,
        "lost": 0,
        "loss": 0,
    }
    found = {"goal": "ndr", "loss_ratio": 0, "load": 20000, "bits": 1.024e7, "interval": [19e3, 21e3],
             "limit": "dut", "stop": "resolution", "trials": 11}  # fmt: skip
    part = {"name": "64B", "frame": 64, "most": 30000, "findings": [found], "trials": [trial]}
    search = {"kind": "throughput", "strategy": "binary", "unit": "frames/s", "resolution": 0.01,
              "confidence": 0.99, "seconds": 1, "planned": 20, "valid": True, "parts": [part]}  # fmt: skip
    legs = [leg | {"levels": {"load": i}} for i, leg in enumerate(result["legs"])]
    one = typed(result, search=search, legs=legs)
    assert opening.opening(one).legs.rows == []
    # a load above the edge is meant to fail, and what was tried is no grid of levels
    assert verdict_plot.verdict_plot(one).charts == []
    assert "factors" not in build(one, "{}", "", "").charts
    assert "| 64B | NDR | 20,000 /s | 10.2 Mbit/s |" in opening.paragraph(one)


def test_many_reasons_are_not_all_said_at_the_top(result: Json) -> None:
    reasons = [
        {"code": "ND-90-03", "what": "", "value": 0.5, "limit": 0.2, "leg": f"leg {i}"} for i in range(20)
    ]
    said = verdict(typed(result, valid=False, reasons=reasons, thresholds=[])).points
    # six, how many more, and the remedy
    assert len(said) == 8
    assert "14 more reasons stand at the trials." in [one.plain() for one in said]


def test_of_passed_thresholds_one_with_a_margin_is_plotted(result: Json) -> None:
    passed = [t | {"passed": True} for t in result["thresholds"]]
    passed = [next(t for t in passed if t["metric"] == "probe.errors"), *passed]
    about = verdict_plot.verdict_plot(typed(result, thresholds=passed)).about
    assert about is not None
    assert about.plain().startswith("Judged by \u2068iot mixed / sensors.delay.publish.p99\u2069 ≤")
    assert verdict_plot.verdict_plot(typed(result, thresholds=passed[:1])).charts


def test_the_paragraph_says_it_all_and_is_plain_markdown(result: Json) -> None:
    text = opening.paragraph(typed(result))
    assert text.startswith("**Fail: iot-demo.** The measurement is valid. 5 of 6 thresholds pass.")
    assert "| iot mixed | 4,241 /s ✓ sensors: 2,994 /s, limit ≥ 2,900 /s |" in text
    assert "AMD EPYC 7543" in text
    assert text.rstrip().endswith("`netdyno demo --repetitions 2`")
    assert "**불합격: iot-demo.**" in opening.paragraph(typed(result), catalogue("ko"))
    alone = opening.paragraph(typed(result, legs=result["legs"][:1], thresholds=[]))
    assert "| Throughput | Loss |" in alone
    assert "iot mixed" not in alone
    evil = typed(result, name="[a](b) | <x>\n# `c`", command=["a`b"], id="`x`")
    said = opening.paragraph(evil)
    assert r"\[a\](b) \| \<x\> \# \`c\`" in said
    assert said.splitlines()[-1].count("`") == 4
    assert [line for line in said.splitlines() if line.startswith("#")] == []


def test_nothing_measured_is_not_blamed_on_the_generator(result: Json) -> None:
    said = verdict(typed(result, valid=False, legs=[], thresholds=[]))
    assert "no complete measurement" in said.lead.plain()


def test_percentile_curve_stops_where_samples_end() -> None:
    histogram = HdrHistogram(1, 600_000_000_000, 3)
    for v in range(1, 1001):
        histogram.record_value(v * 1000)
    points = percentiles.curve(percentiles.decode(histogram.encode().decode()))
    known = [p for p in points if p is not None]
    assert len(known) == 31  # up to 99.9 %: one in a thousand
    assert known == sorted(known)
    assert known[10] == pytest.approx(900_000, rel=0.01)
    assert percentiles.decode("not a histogram") is None
    assert set(percentiles.curve(None)) == {None}


def test_histograms_merge() -> None:
    a, b = HdrHistogram(1, 600_000_000_000, 3), HdrHistogram(1, 600_000_000_000, 3)
    a.record_value(10, 99)
    b.record_value(5_000_000, 1)
    merged = percentiles.merge([a.encode().decode(), b.encode().decode()])
    assert merged is not None
    assert merged.get_total_count() == 100


def test_load_chart_keeps_three_numbers_apart(result: Json) -> None:
    rep = typed(result).legs[0].repetitions[0]
    chart = charts.load(rep.series)
    assert [c["label"] for c in chart["views"][0]["lines"]] == [
        {"t": "Intended"},
        {"t": "Offered"},
        {"t": "Delivered"},
    ]
    expected = sum(g.counts.messages_sent for g in rep.series[5].groups.values()) / rep.series[5].dt
    assert chart["views"][0]["lines"][1]["values"][5] == pytest.approx(expected)
    assert [v["label"] for v in chart["views"][1:]] == [{"d": n} for n in ("sensors", "web", "probe")]


def test_outstanding_ends_with_what_was_lost(result: Json) -> None:
    rep = typed(result).legs[0].repetitions[0]
    counts = [g.counts for s in rep.series for g in s.groups.values()]
    lost = sum(c.messages_sent for c in counts) - sum(c.messages_delivered for c in counts)
    assert charts.outstanding(rep.series)["views"][0]["lines"][0]["values"][-1] == lost


def test_long_series_are_merged_exactly(result: Json) -> None:
    points = [SeriesPoint.model_validate(p) for p in result["legs"][0]["repetitions"][0]["series"]]
    many = [p.model_copy(update={"t": float(i)}) for i in range(250) for p in points]
    few = coarsen(many)
    assert len(many) > 2000 >= len(few) > 1000
    for name in ("messages_sent", "messages_delivered"):
        totals = [
            sum(getattr(g.counts, name) for p in series for g in p.groups.values()) for series in (many, few)
        ]
        assert totals[0] == totals[1]
    worst = [
        max(p.groups["web"].delays["request"].p99 for p in series if "web" in p.groups)
        for series in (many, few)
    ]
    assert worst[0] == worst[1]


def test_a_stub_of_an_interval_joins_the_one_before(result: Json) -> None:
    points = [SeriesPoint.model_validate(p) for p in result["legs"][0]["repetitions"][0]["series"]]
    stub = points[5].model_copy(update={"t": 24.0006, "dt": 0.0006, "phase": "drain"})
    stub.workers = [w.model_copy(update={"cpu": 1.0}) for w in stub.workers]
    joined = without_stubs([*points, stub])
    assert len(joined) == len(points)
    assert joined[-1].dt == pytest.approx(1.0006)
    assert joined[-1].groups["web"].counts.messages_sent == stub.groups["web"].counts.messages_sent
    assert joined[-1].workers[0].cpu < 0.2
    assert without_stubs(points) == points
    assert list(in_order(points, ["web", "sensors"])[3].groups) == ["web", "sensors", "probe"]


def test_cores_of_several_hosts_are_told_apart(result: Json) -> None:
    rep = typed(result).legs[0].repetitions[0]
    workers = [{"worker": n, "core": 0, "host": host, "cpu": 0.5} for n, host in enumerate(("left", "right"))]
    rep.series = [
        point.model_copy(update={"workers": [WorkerUsage(**one) for one in workers]}) for point in rep.series
    ]
    lines = charts.cpu(rep.series, rep.model_copy(update={"dut": {}}))["views"][0]["lines"]
    assert [one["label"]["a"]["host"].strip("\u2068\u2069") for one in lines] == ["left", "right"]


def test_a_stopped_run_ends_in_no_peak_and_its_rate_changes_are_marked(result: Json) -> None:
    rep = typed(result).legs[0].repetitions[0]
    full = [point.model_copy(update={"t": float(i + 1), "dt": 1.0}) for i, point in enumerate(rep.series[:6])]
    # the measure phase ends 12 ms after a point, its drain 2.6 ms later
    ends = [full[5].model_copy(update={"t": 6 + t, "dt": dt}) for t, dt in ((0.012, 0.012), (0.0146, 0.0026))]
    rep.series = [*full, *ends]
    rep.rates = [RateChange(t=3, group="web", of="group", rate=60, before=20)]
    rep.paused = [PausedInterval(t=2, seconds=9)]
    drawn = charts.trial(rep)
    assert drawn["t"] == [1, 2, 3, 4, 5, 6.0146]
    (load,) = (one for one in drawn["charts"] if one["id"] == "load")
    for line in load["views"][0]["lines"]:
        assert line["values"][-1] < 4 * line["values"][-2], "no rate of 12 ms is drawn"
    assert [(one["at"], one["label"]["t"]) for one in drawn["marks"]] == [
        (2, "paused for {time}"),
        (3, "{group}: {before} → {rate}"),
    ]


def test_flows_read_write_and_fall_into_bins(flows_csv: str) -> None:
    read = flows.read(flows_csv)
    assert flows.write(read) == flows_csv
    sensors = flows.distributions([f for f in read if f.repetition == 0 and f.group == "sensors"])[0]
    assert sensors.devices == 2400 == sum(n for *_, n in sensors.bins)
    assert sensors.complete + sensors.partial + sensors.none == 2400
    worst = flows.worst(read, 10)
    assert max(f.delivered / f.sent for f in worst) <= min(
        f.delivered / f.sent for f in read if f not in worst
    )


def test_flows_may_stand_in_the_result(result: Json) -> None:
    changed = copy.deepcopy(result)
    changed["legs"][0]["repetitions"][0]["flows"] = {
        "total": 1,
        "flows": [["web", 7, 3, 3, 9, 9, 0, 1e6, 2e6]],
    }
    found = flows.inside(typed(changed))
    assert found == [flows.Flow("iot mixed", 0, "web", 7, 3, 3, 9, 9, 0, 1e6, 2e6)]
    assert "flows.csv" in [d.name for d in build(typed(changed), "{}", "", "").downloads]


def test_series_csv_has_a_row_for_each_group_and_interval(result: Json) -> None:
    rows = list(csv.DictReader(io.StringIO(series_csv(typed(result)))))
    assert len(rows) == 2 * 24 * 3 + 2 * 24
    assert sum(int(r["messages_sent"]) for r in rows if r["group"] == "raw") == sum(
        p["groups"]["raw"]["counts"]["messages_sent"]
        for rep in result["legs"][1]["repetitions"]
        for p in rep["series"]
    )


def test_hostile_names_stay_text(result: Json) -> None:
    evil = "</script><script>window.pwned = 1</script>\"'\u202e\u2028&amp;"
    changed = json.loads(
        json.dumps(result).replace("sensors", "\\u0000").replace("\\u0000", json.dumps(evil)[1:-1])
    )
    changed |= {"name": evil, "environment": {evil: {evil: evil}}, "command": [evil]}
    page = render(
        changed, flows_csv=flows.write([flows.Flow("iot mixed", 0, evil, 1, 1, 1, 3, 2, 1, 1e6, 1e6)])
    )
    assert page.count("<script") == 3
    assert "window.pwned = 1</script>" not in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["legs"]


def test_nearly_empty_results_still_make_a_page() -> None:
    for legs in ([], [{"name": "a"}], [{"name": "a", "repetitions": [{"run": "r0"}]}]):
        assert "<h1>" in render({"id": "x", "name": "x", "started": "", "legs": legs})


def test_environment_is_flattened_by_name() -> None:
    found = environment(
        {"kernel": "6.1", "nics": [{"name": "eth0", "mtu": 1500}], "cpu": {"model": {"id": 3}}, "on": True}
    )
    assert found == [
        ("", [("kernel", "6.1"), ("on", "true")]),
        ("nics", [("eth0.mtu", "1500")]),
        ("cpu", [("model.id", "3")]),
    ]


def test_ports_and_who_does_which_work(result: Json) -> None:
    found = [
        [[str(cell.text).strip("\u2068\u2069") for cell in row] for row in tables.ports(rep).rows]
        for leg in typed(result).legs
        for rep in leg.repetitions
    ]
    assert [] in found
    software = "checksums sent, VLAN tags, time stamps"
    assert [["gen0", "0000:83:00.0", "1, 1", "checksums received", software]] in found


def test_trials_that_went_wrong_say_so(result: Json) -> None:
    changed = copy.deepcopy(result)
    rep = changed["legs"][0]["repetitions"][0]
    rep |= {"stopped": "failed", "error": {"code": "ND-91-02", "what": "broker gone"}}
    rep["dut"]["mosquitto"]["died"] = "signal 9"
    notices = [n.plain() for n in leg_view(typed(changed).legs[0], []).trials[0].notices]
    assert len(notices) == 3
    assert any("signal 9" in n for n in notices)


def test_a_folder_is_read_byte_for_byte(tmp_path: Path, result: Json, flows_csv: str) -> None:
    raw = json.dumps(result, indent=1)
    (tmp_path / "result.json").write_text(raw, encoding="utf-8")
    (tmp_path / "flows.csv").write_text(flows_csv, encoding="utf-8")
    page = render_folder(tmp_path)
    assert inline.packed(raw) in page
    assert inline.packed(flows_csv) in page


def test_modules_join_in_order_only() -> None:
    parts = {
        "a.js": "export const x = 1;\n",
        "b.js": 'import { x } from "./a.js";\nexport function y() { return x; }\n',
    }
    assert inline.join(parts) == "// a.js\nconst x = 1;\n\n// b.js\nfunction y() { return x; }\n"
    with pytest.raises(ValueError, match=r"b\.js imports a\.js"):
        inline.join(dict(reversed(parts.items())))
