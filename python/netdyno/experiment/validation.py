"""What is wrong with profiles, experiments and graphs before they start. The core is the one validator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from netdyno import config
from netdyno.core import daemon, models, secret
from netdyno.core.address import Address
from netdyno.core.client import Client
from netdyno.errors import Error, placed
from netdyno.experiment import faults, ports
from netdyno.experiment.spec import Experiment, LegSpec, Variant, bind_targets, table, variants
from netdyno.lab import topology
from netdyno.lab.dut import DRIVERS, DutSite
from netdyno.lab.dut.server import Server

CPUS = Path("/sys/devices/system/cpu")
Finding = dict[str, Any]
Ask = Callable[[Sequence[Any]], list[list[Finding]]]
"""Of each profile, what is wrong with it."""


def _anywhere() -> dict[str, str]:
    """What a device under test may turn out to be: its addresses come with the topology."""
    return {
        scheme.name: f"{scheme.name}://192.0.2.1" + ("" if scheme.port or scheme.carrier == "icmp" else ":7")
        for scheme in models.schemes()
    }


def of_profiles(profiles: Sequence[Any]) -> list[list[Finding]]:
    """What the core's program finds wrong with each profile."""
    return [errors for errors, _ in review(profiles)]


def of_confined(profiles: Sequence[Any]) -> list[list[Finding]]:
    """The same of profiles that may name what a client over TCP may."""
    return [errors for errors, _ in review(profiles, confined=True)]


def review(profiles: Sequence[Any], *, confined: bool = False) -> list[tuple[list[Finding], list[Finding]]]:
    """The same, and what it advises to look at again where nothing is wrong. The program is started once."""
    if confined and (named := [one for profile in profiles for one in secret.elsewhere(profile)]):
        what = "a secret in the environment or in a file of this machine cannot be named from elsewhere"
        wrong = [
            Error("ND-104-16", what, at=at, fix="Write the secret itself: it is not kept").as_dict()
            for at in named
        ]
        return [(wrong, []) for _ in profiles]
    resolved = [secret.resolve(profile) for profile in profiles]
    texts = [json.dumps(made, default=str) for made, _, wrong in resolved if not wrong]
    distinct = list(dict.fromkeys(texts))
    options = ["--confined"] * confined
    said = dict(zip(distinct, _core(distinct, *options), strict=True))
    # of many variants of one profile each has the same faults: all are named of the first
    for text in [text for text in distinct if said[text]["errors"]][:1]:
        said[text] = said[text] | {"errors": _all_faults(json.loads(text), said[text]["errors"], *options)}
    each = iter(texts)
    return [(wrong, []) if wrong else _findings(said[next(each)]) for _, _, wrong in resolved]


def _findings(said: dict[str, Any]) -> tuple[list[Finding], list[Finding]]:
    return [placed(error) for error in said["errors"]], [placed(one) for one in said["advice"]]


def reviewed(profile: Any) -> tuple[list[Finding], list[Finding]]:
    """Of one profile what is wrong, and what to look at again."""
    (found,) = review([profile])
    return found


def of_impairment(spec: Any) -> list[Finding]:
    """What it finds wrong with how a link is to be impaired."""
    return [placed(error) for error in _check_with_core(spec, "--impair")["errors"]]


def impairment(spec: Any, at: str) -> dict[str, Any]:
    """How a link is to be impaired, with all that was left out; raises when it makes no sense."""
    found = _check_with_core(spec, "--impair")
    for error in found["errors"]:
        raise Error.of(under(at, placed(error)))
    return dict(found["spec"])


def of_graph(graph: Any) -> list[Finding]:
    """What it finds wrong with a graph of packet elements."""
    errors = _check_with_core(graph, "--graph")["errors"]
    return [placed(error) for error in _all_faults(graph, errors, "--graph")]


def _all_faults(document: Any, errors: Sequence[Finding], *options: str) -> list[Finding]:
    """All faults of a document that can be known, from those that the core names first."""

    def check(documents: Sequence[Any]) -> list[list[Finding]]:
        return [one["errors"] for one in _core([json.dumps(made) for made in documents], *options)]

    # what the core finds in the text ends its look at it; of what it finds in the document it names all
    in_text = len(errors) == 1 and " (line " in str(errors[0].get("what"))
    return [dict(one) for one in (faults.complete(document, errors, check) if in_text else errors)]


def quoted(graph: Any, at: str) -> None:
    """Refuse a port that was to be `null` and is nothing, as YAML reads that word."""
    ports = graph.get("ports") if isinstance(graph, dict) else None
    for name, port in ports.items() if isinstance(ports, dict) else ():
        if isinstance(port, dict) and "device" in port and port["device"] is None:
            place = f"{at}: ports.{name}.device"
            raise Error("ND-104-04", "it has no device", at=place, fix=config.NULL)


def error(found: Sequence[Finding]) -> Error:
    """Findings as one error: the first, and all of them if there are more."""
    return Error.of(found[0] | ({"all": found} if len(found) > 1 else {}))


def _check_with_core(document: Any, option: str) -> dict[str, Any]:
    """What the core's program says of one document."""
    (said,) = _core([json.dumps(document, default=str)], option)
    return said


def _core(texts: Sequence[str], *options: str) -> list[dict[str, Any]]:
    """What the core's program says of each document."""
    if not texts:
        return []
    done = subprocess.run(
        [str(daemon.program()), "validate", "-", "--lines", "--json", *options],
        input="".join(text + "\n" for text in texts),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        found = [
            {"errors": list(one["errors"]), "advice": list(one.get("advice") or ()), "spec": one.get("spec")}
            for one in answers
        ]
    except (ValueError, KeyError, TypeError):
        found = []
    if len(found) != len(texts):
        words = done.stderr.strip().splitlines()
        what = f"the daemon cannot validate: {words[-1] if words else f'status {done.returncode}'}"
        raise Error("ND-92-21", what, at=str(daemon.program()), fix="Build it again with `./do setup`")
    return found


def of_variants(found: Sequence[Variant], ask: Ask = of_profiles) -> Iterator[tuple[str, Finding]]:
    """What is wrong with each variant: its name and the finding, whose place is one in its profile."""
    answers = ask([as_run(variant.leg, variant.profile) for variant in found])
    for variant, findings in zip(found, answers, strict=True):
        for finding in findings:
            yield variant.name, finding


def review_experiment(
    wanted: Experiment, folder: Path, *, confined: bool = False
) -> tuple[list[Finding], list[Finding]]:
    """What is wrong with an experiment's variants, links and DUTs, and what to look at again."""
    errors: list[Finding] = []
    advice: list[Finding] = []
    found = variants(wanted, folder)
    answers = review([as_run(variant.leg, variant.profile) for variant in found], confined=confined)
    for variant, answer in zip(found, answers, strict=True):
        at = f"legs.{variant.name}.profile"
        for all_of_them, said in zip((errors, advice), answer, strict=True):
            all_of_them.extend(under(at, one) for one in said)
    return [*errors, *of_links(found), *of_duts(found)], advice


def of_links(found: Sequence[Variant]) -> Iterator[Finding]:
    """What is wrong with the impaired links of each variant's topology."""
    for variant in found:
        topology = variant.leg.topology
        for number, link in enumerate(topology.links if topology else ()):
            if link.impair is not None:
                at = f"legs.{variant.name}.topology.links[{number}].impair"
                yield from (under(at, finding) for finding in of_impairment(link.impair))


def of_duts(found: Sequence[Variant]) -> Iterator[Finding]:
    """What a run would find out about the devices under test only when their network is up."""
    for variant in found:
        taken: dict[tuple[str | None, int, int], str] = {}
        for name, spec in variant.leg.duts.items():
            at = f"legs.{variant.name}.duts.{name}"
            if away := [core for core in spec.cores if not (CPUS / f"cpu{core}").is_dir()]:
                what = f"there is no core {away[0]} here"
                yield Error("ND-104-05", what, at=f"{at}.cores", fix="Use cores of this machine").as_dict()
            try:
                address = _address(variant.leg, spec.host) if DRIVERS[spec.driver].reached else ""
            except Error as e:
                yield e.as_dict() | {"at": f"{at}.host"}
                continue
            dut = DRIVERS[spec.driver](DutSite(name, address), spec.options)
            generator = variant.leg.topology.generator if variant.leg.topology else None
            if isinstance(dut, Server) and spec.host is None and generator is not None:
                what = f"{name} listens on this machine, to which the generator's host {generator} has no way"
                fix = "Name the host of the topology that it stands on"
                yield Error("ND-104-07", what, at=f"{at}.host", fix=fix).as_dict()
            for kind, port in dut.ports() if isinstance(dut, Server) else ():
                other = taken.setdefault((spec.host, kind, port), name)
                if other != name:
                    what = f"{other} and {name} both listen on port {port} of {spec.host or 'this machine'}"
                    fix = "Give one of them another port in its options"
                    yield Error("ND-104-07", what, at=f"{at}.options", fix=fix).as_dict()


def _address(leg: LegSpec, host: str | None) -> str:
    if leg.topology is None or host is None:
        return "127.0.0.1"
    return leg.topology.address(host)


def under(at: str, finding: Finding) -> Finding:
    """A finding in something that stands at some place."""
    inner = str(finding.get("at") or "")
    return finding | {"at": ".".join(part for part in (at, inner) if part)}


def as_run(leg: LegSpec, profile: Mapping[str, Any]) -> dict[str, Any]:
    """A profile with what the leg makes of it: targets that it binds, and its lengths."""
    made = ports.attach(
        profile,
        {
            name: DRIVERS[dut.driver](DutSite(name, "192.0.2.1"), dut.options).attached()
            for name, dut in leg.duts.items()
        },
    )
    urls = dict.fromkeys(leg.duts, _anywhere())
    if bound := {name: url for name, url, _ in bind_targets(leg, made, urls)}:
        made["targets"] = table(made.get("targets")) | bound
    if lengths := leg.trial.model_dump(exclude_none=True, exclude={"load"}):
        made["phases"] = table(made.get("phases")) | lengths
    return made


def with_daemon(socket: Address) -> Ask:
    """Asks a daemon that runs already."""

    def ask(profiles: Sequence[Any]) -> list[list[Finding]]:
        with Client(socket) as client:
            return [_daemon_findings(client, profile) for profile in profiles]

    return ask


def _daemon_findings(client: Client, profile: Any) -> list[Finding]:
    made, _, wrong = secret.resolve(profile)
    return wrong or [placed(error) for error in client.call("profile.validate", profile=made)["errors"]]


Placing = Callable[[str, str], str]
"""From a leg and a place in its profile to what the user wrote."""


def in_leg(leg: str, at: str) -> str:
    """The place of a finding in an experiment."""
    return f"legs.{leg}.profile.{at}"


def refuse(
    experiment: Experiment,
    base: Path,
    socket: Address | None = None,
    place: Placing = in_leg,
    confined: bool = False,
) -> None:
    """Refuse what cannot run, before anything is made or changed."""
    check(experiment, base, socket, place, confined)
    if any(leg.topology for leg in experiment.legs):
        topology.need_root()


def check(
    experiment: Experiment,
    base: Path,
    socket: Address | None = None,
    place: Placing = in_leg,
    confined: bool = False,
) -> None:
    """Refuse what is wrong, whoever asks."""
    ask = with_daemon(socket) if socket else of_confined if confined else of_profiles
    all_of_them = variants(experiment, base)
    found = [one | {"at": place(leg, one["at"])} for leg, one in of_variants(all_of_them, ask)]
    found += [*of_links(all_of_them), *of_duts(all_of_them)]
    if found:
        raise error(found)
