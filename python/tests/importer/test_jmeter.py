"""JMeter plans as profiles; what a profile cannot say is named by line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdyno.cli import app
from netdyno.errors import Error
from netdyno.importer import jmeter
from netdyno.importer.plan import Faults, profile

SHOP = Path(__file__).with_name("shop.jmx")


def made(text: str, path: Path = SHOP, **properties: str) -> dict[str, Any]:
    """The profile of a plan."""
    faults = Faults("p.jmx")
    plan, _ = jmeter.load(text.encode(), "p.jmx", path, properties, faults)
    found = profile(plan, faults, 600)
    faults.check()
    return found


def with_element(element: str) -> str:
    """The plan with one more element in its thread group."""
    at = "<UniformRandomTimer guiclass"
    return SHOP.read_text().replace(at, f"{element}<hashTree/>\n        {at}")


def refused(element: str) -> str:
    with pytest.raises(Error) as raised:
        made(with_element(element))
    line = next(i for i, text in enumerate(with_element(element).splitlines(), 1) if element[:20] in text)
    assert (raised.value.code, raised.value.at) == ("ND-104-75", f"p.jmx:{line}")
    return raised.value.what


def test_a_plan_as_people_write_it() -> None:
    found = made(SHOP.read_text(), port="81")
    group = found["groups"][0]
    assert (group["name"], group["target"], group["devices"]) == ("Buyers", "http://127.0.0.1:81", 4)
    assert (group["load"], found["phases"]["measure"]) == ({"closed": {"ramp": "1s"}}, "3s")
    model = group["model"]["http"]
    login = model["before"][0]
    assert (login["method"], login["body"]) == ("POST", '{{"user": "ann", "n": {random:1-9}}}')
    assert login["capture"] == {"token": {"json": "/data/token"}}
    assert (model["path"], model["expect"]) == ("/search?q=red+shoes", ["200"])
    assert model["headers"] == {"Accept": "application/json", "Authorization": "Bearer {response.token}"}
    assert [step["path"] for step in model["then"]] == ["/item", "/item"], "a loop is written out"
    steps = [login, model, *model["then"]]
    assert {(step["pause"], step["pause_spread"]) for step in steps} == {("20ms", "10ms")}


def test_loops_end_a_plan() -> None:
    found = made(SHOP.read_text().replace(">-1<", ">5<"))
    assert found["groups"][0]["total"] == 4 * (5 * 3 + 1)


def test_rows_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, out = tmp_path / "p.jmx", tmp_path / "p.yaml"
    (tmp_path / "users.txt").write_text("ann;s3cret\nbob;x y\n")
    table = """<CSVDataSet guiclass="TestBeanGUI" testclass="CSVDataSet" testname="Users">
      <stringProp name="filename">users.txt</stringProp><stringProp name="variableNames">name,password</stringProp>
      <stringProp name="delimiter">;</stringProp></CSVDataSet>"""
    plan.write_text(with_element(table).replace(">/item<", ">/item/${name}<"))
    assert app.call(["import", str(plan)]) == 104
    assert "--output" in capsys.readouterr().err
    assert app.call(["import", str(plan), "--output", str(out)]) == 0
    found = yaml.safe_load(out.read_text())
    assert found["data"] == {"users": "users.csv"}
    assert found["groups"][0]["model"]["http"]["then"][0]["path"] == "/item/{users.name}"
    assert (tmp_path / "users.csv").read_text() == "name,password\nann,s3cret\nbob,x y\n"


@pytest.mark.parametrize(
    ("element", "what"),
    [
        ('<IfController testname="x"><stringProp name="IfController.condition">1</stringProp></IfController>', "IfController"),
        ('<JSR223Sampler testname="x"/>', "JSR223Sampler"),
        ('<CookieManager testname="x"/>', "CookieManager"),
        ('<ConstantThroughputTimer testname="x"/>', "ConstantThroughputTimer"),
        ('<ResponseAssertion testname="x"><stringProp name="Assertion.test_field">Assertion.response_data</stringProp>'
         '</ResponseAssertion>', "status codes"),
        ('<HTTPSamplerProxy testname="x"><stringProp name="HTTPSampler.path">/a/${unknown}</stringProp></HTTPSamplerProxy>',
         "${unknown} has no counterpart"),
        ('<HTTPSamplerProxy testname="x"><stringProp name="HTTPSampler.domain">other</stringProp></HTTPSamplerProxy>',
         "another server"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_named_by_line(element: str, what: str) -> None:
    assert what in refused(element)


def test_what_is_disabled_is_left_out() -> None:
    assert made(with_element('<JSR223Sampler testname="x" enabled="false"/>')) == made(SHOP.read_text())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a", "/a"), ("$.a.b[0].c", "/a/b/0/c"), ("$['x/y'].z", "/x~1y/z"), ("$..a", None), ("$.a[*]", None), ("a", None),
    ],
)  # fmt: skip
def test_json_paths(path: str, expected: str | None) -> None:
    assert jmeter.json_pointer(path) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<jmeterTestPlan>", "no XML"),
        ("<a/>", "<a> is no JMeter plan"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><jmeterTestPlan/>', "entities"),
        ("<jmeterTestPlan><hashTree/></jmeterTestPlan>", "sends no HTTP request"),
    ],
)
def test_what_is_no_plan(text: str, what: str) -> None:
    with pytest.raises(Error) as raised:
        made(text)
    assert raised.value.code == "ND-104-75" and what in raised.value.what


def test_a_plan_that_is_damaged_is_refused_or_converted() -> None:
    text, draw = SHOP.read_text(), random.Random(1)
    for _ in range(300):
        lines = text.splitlines()
        for _ in range(3):
            at = draw.randrange(len(lines))
            lines[at] = draw.choice(["", lines[draw.randrange(len(lines))], lines[at].replace(">", ">x", 1)])
        try:
            made("\n".join(lines))
        except Error as e:
            assert e.code == "ND-104-75"


@pytest.mark.parametrize("name", ["/dev/zero", "../secret.csv", "/etc/hostname", "absent.csv"])
def test_a_table_that_is_not_beside_the_plan_is_not_read(name: str) -> None:
    table = f'<CSVDataSet testname="x"><stringProp name="filename">{name}</stringProp></CSVDataSet>'
    assert name in refused(table)


def test_constants_without_end_and_numbers_that_are_none() -> None:
    argument = """<elementProp name="a{0}" elementType="Argument"><stringProp name="Argument.name">a{0}</stringProp>
        <stringProp name="Argument.value">{1}</stringProp></elementProp>"""
    bomb = "".join(argument.format(i, f"${{a{i + 1}}}" * 100) for i in range(8))
    text = SHOP.read_text().replace('<elementProp name="port"', f'{bomb}<elementProp name="port"')
    with pytest.raises(Error) as raised:
        made(text.replace(">/item<", ">/${a0}<"))
    assert raised.value.code == "ND-104-75"
    with pytest.raises(Error) as raised:
        made(SHOP.read_text().replace("${__P(users,4)}", "inf"))
    assert "no number" in raised.value.what


def test_what_stands_beside_the_thread_groups_counts_too() -> None:
    at = "<ThreadGroup "
    text = SHOP.read_text()
    assert text.count(at) == 1
    with pytest.raises(Error, match="ConstantThroughputTimer has no counterpart"):
        made(text.replace(at, f'<ConstantThroughputTimer testname="x"/><hashTree/>{at}'))
