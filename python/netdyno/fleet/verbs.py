"""`netdyno fleet`: start, check, examine and end the agents of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno.cli import console, summary, values
from netdyno.cli.execute import Views, measure, put_back
from netdyno.cli.options import Json, Outputs
from netdyno.cli.plain import PlainLines
from netdyno.cli.verb import Verb, Verbs
from netdyno.errors import HOST_LOST, Error
from netdyno.experiment import choose
from netdyno.experiment.measurer import Core, FleetCore
from netdyno.experiment.verdict import exit_code
from netdyno.fleet import agents, certificates, hosts, orphan, status
from netdyno.fleet.agents import Fleet
from netdyno.fleet.launchers import launcher
from netdyno.fleet.orphan import EndedCore, RunNote
from netdyno.fleet.rise import down as end
from netdyno.fleet.rise import up as begin

app = typer.Typer(
    help="Generate one load from several hosts.",
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

HostsFile = Annotated[Path, typer.Argument(help="File that lists the hosts.", metavar="HOSTS.YAML")]


def _names(incomplete: str) -> list[str]:
    return [name for name in agents.names() if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(help="Name of a fleet that is up, or its HOSTS.YAML.", autocompletion=_names),
]


@app.command(cls=Verb)
def up(file: HostsFile) -> None:
    """Start an agent on each host.

    HOSTS.YAML lists hosts: processes of this machine, each in a network namespace if need be, machines that
    `ssh` reaches without a password, or agents that run already. The agents stay until `netdyno fleet down`.
    Of a fleet that is up, the agents that do not answer are started again; the others stay as they are.
    Control connections to other machines go through SSH or mutual TLS.

        netdyno fleet up hosts.yaml
        netdyno run http://10.0.0.2/ --fleet hosts
    """
    read = hosts.read(file)
    before = agents.load(read.name).agents if read.name in agents.names() else ()
    made = begin(read.name, read.hosts, read.agents_per_relay)
    if again := [one.host.name for one in made.agents if before and one not in before]:
        console.line(f"started again: {', '.join(again)}")
    console.line(f"fleet {made.name} is up: {', '.join(one.host.name for one in made.agents)}")
    console.line(f"use it with `netdyno run … --fleet {made.name}`")


@app.command("status", cls=Verb)
def show_status(
    name: Annotated[
        str | None, typer.Argument(help="Name of a fleet, or its HOSTS.YAML; default all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask the agents of a fleet how they are, and what runs.

    Exit code 91 when a host does not answer.

        netdyno fleet status
        netdyno fleet status lab --json
    """
    fleets = [agents.load(one) for one in ([name] if name else agents.names())]
    known = {fleet.name: status.ask(fleet) for fleet in fleets}
    runs = {fleet: orphan.told(fleet) for fleet in known}
    if as_json:
        listed = [{"name": one, "run": runs[one], "hosts": rows} for one, rows in known.items()]
        console.document({"fleets": listed})
    else:
        if not known:
            console.note("no fleet is up; start one with `netdyno fleet up hosts.yaml`")
        for fleet, rows in known.items():
            console.table(
                ["fleet", "host", "launcher", "state", "version", "cores", "clock"],
                [[fleet, *_row(one)] for one in rows],
            )
            if run := runs[fleet]:
                console.line(_run(fleet, run))
    if any(one["error"] for rows in known.values() for one in rows):
        raise typer.Exit(HOST_LOST)


def _run(fleet: str, run: dict[str, Any]) -> str:
    began = datetime.fromtimestamp(run["began"]).astimezone().isoformat(" ", "seconds")
    said = f"fleet {fleet}: run {run['name']} began at {began}, "
    if run["controller"] is not None:
        return f"{said}controller: process {run['controller']}"
    return f"{said}and its controller is gone: see `netdyno fleet collect {fleet}`"


def _row(one: dict[str, Any]) -> list[str]:
    if one["error"]:
        return [one["name"], one["launcher"], f"lost: {one['error']['what']}", "", "", ""]
    cores = str(len(one["cores"]))
    state = "ready" if one["left"] is None else f"{one['state']}, {one['left']:.0f} s left"
    clock = f"{one['clock_offset'] * 1e3:+.3f} ms ± {one['clock_error'] * 1e3:.3f} ms"
    return [one["name"], one["launcher"], state, one["version"], cores, clock]


@app.command(cls=Verb)
def collect(name: Name, as_json: Json = False) -> None:
    """Collect a run whose controller was killed.

    Agents end such a run after 3 s, and each keeps what it measured until it gets another run. It becomes one
    result, as if the run had been stopped then: in a run of its own, with a report. Exit code 91 where it
    ended before its time.

        netdyno fleet collect lab
    """
    fleet = agents.load(name)
    run = orphan.orphan(fleet.name)
    put_back()
    code = _collected(fleet, run, as_json)
    orphan.forget(fleet.name)
    raise typer.Exit(code)


def _collected(fleet: Fleet, run: RunNote, as_json: bool) -> int:
    """Keep it as a run and print it; its exit code."""
    wanted = choose.document(dict(run.profile), fleet.name, Path()).experiment

    def connect(log: Callable[[str], None]) -> Core:
        return EndedCore(fleet, run, log)

    fleets = {leg.name: FleetCore(fleet.name, connect) for leg in wanted.legs}
    views = Views([] if as_json else [PlainLines()])
    result, folder = measure(wanted, Path(), Outputs(json=as_json), views, fleets=fleets)
    if as_json:
        console.document(result.model_dump(mode="json"))
    else:
        summary.show(result, folder)
    if result.error:
        console.show(Error.of(result.error))
    return exit_code(result)


@app.command(cls=Verb)
def doctor(file: HostsFile, as_json: Json = False) -> None:
    """Check that the hosts of a file can run agents.

    Nothing is started. Exit code 92 when a host cannot.

        netdyno fleet doctor hosts.yaml
    """
    read = hosts.read(file)

    def examine(host: hosts.HostSpec) -> list[dict[str, Any]]:
        try:
            found = list(launcher(host).examine(host))
        except Error as e:
            found = [(False, e.what, e.fix)]
        return [{"host": host.name, "good": good, "what": what, "fix": fix} for good, what, fix in found]

    with ThreadPoolExecutor(max_workers=min(32, len(read.hosts))) as pool:
        rows = [one for rows in pool.map(examine, read.hosts) for one in rows]
    if as_json:
        console.document({"fleet": read.name, "findings": rows})
    else:
        for one in rows:
            mark, fix = "ok" if one["good"] else "FAIL", f". {one['fix']}" if one["fix"] else ""
            console.line(f"{mark:4}  {one['host']}: {one['what']}{fix}")
    if not all(one["good"] for one in rows):
        raise typer.Exit(92)


@app.command("certificates", cls=Verb)
def make_certificates(
    file: HostsFile,
    days: Annotated[
        int,
        typer.Option(help="Days of validity.", metavar="N", parser=values.whole("--days", 1, 3650)),
    ] = 30,
) -> None:
    """Make certificates for agents that are not started by `fleet up`.

    For hosts with `launcher: address`. They go into the folder that `certificates` of a host names, by
    default `certificates` beside HOSTS.YAML: `ca.pem`, `client.pem` and `client.key` are for this machine,
    and the folder HOST in it is for the agent there: `netdynod --mtls HOST:PORT --identity FOLDER`. The key
    of the CA is not kept. Called again, the command makes a new CA: agents with new certificates refuse the
    old ones. While a fleet that is up uses those of a folder, they are not replaced.

        netdyno fleet certificates hosts.yaml
    """
    read = hosts.read(file)
    certificates.refuse_used(read.hosts)
    folders: dict[str, list[str]] = {}
    for host in read.hosts:
        if host.certificates is not None:
            folders.setdefault(host.certificates, []).append(host.name)
    if not folders:
        fix = "`fleet up` makes those of other launchers by itself"
        raise Error(hosts.WRONG, "no host has `launcher: address`", at=str(file), fix=fix)
    for folder, names in folders.items():
        certificates.write(certificates.make(read.name, names, days), Path(folder))
        console.line(f"{folder}: certificates of {', '.join(names)}, valid for {days} days")


@app.command(cls=Verb)
def manifest(
    file: HostsFile,
    image: Annotated[str, typer.Option(help="Container image that has netdynod. Required.", metavar="IMAGE")],
    namespace: Annotated[str, typer.Option(help="Namespace of Kubernetes.", metavar="NAME")] = "default",
    cpu: Annotated[str, typer.Option(help="CPUs of each agent.", metavar="N")] = "2",
    memory: Annotated[
        int, typer.Option(help="Memory of each agent.", metavar="SIZE", parser=values.octets("--memory"))
    ] = "512MiB",  # type: ignore[assignment]
) -> None:
    """Print a manifest that runs the agents as Jobs of Kubernetes.

    For hosts with `launcher: address`, each with its certificate: run `netdyno fleet certificates` before.
    The manifest has the agents' keys, as Secrets: keep it as you keep a password. An agent is reached from
    inside the cluster, at `HOST.FLEET.NAMESPACE.svc`.

        netdyno fleet manifest hosts.yaml --image registry.lab/netdyno:0.1 > jobs.yaml
    """
    from netdyno.fleet import kubernetes

    console.out().print(
        kubernetes.manifest(hosts.read(file), image, namespace, cpu, memory),
        markup=False,
        highlight=False,
        soft_wrap=True,
        end="",
    )


@app.command(cls=Verb)
def down(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Take it down though a host cannot be reached.")
    ] = False,
) -> None:
    """End the agents of a fleet, and remove what was made for them.

    A run that uses them ends too. What `--force` leaves on a host that cannot be reached is removed by
    `netdyno restore` once it can be; exit code 92 says that there is such a host.

        netdyno fleet down lab
    """
    name = agents.load(name).name
    left = end(name, force)
    for one in left:
        console.note(f"not ended, and may still run: {one}")
    console.line(f"fleet {name} is down" + (", but for agents that could not be ended" if left else ""))
    if left:
        raise typer.Exit(92)
