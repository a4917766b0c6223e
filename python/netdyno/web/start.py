"""Starts runs for browsers, and stops, pauses and resumes runs of whichever process of this user."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from netdyno import config, files, paths
from netdyno.cli import values
from netdyno.core.client import Client
from netdyno.errors import Error
from netdyno.experiment import quick, validation
from netdyno.experiment.quick import UrlOptions
from netdyno.experiment.url_options import OPTIONS, UrlOption
from netdyno.lazy import loaded
from netdyno.store import Store
from netdyno.system import proc, python
from netdyno.systems import SYSTEMS
from netdyno.web import job

AT_ONCE = 8
"""Runs that the dashboard starts and that are not over yet."""
WAIT = 60.0
"""Seconds until a run that was started is in the store."""
FILES = ("cacert", "cert", "key")
"""Options of a URL that name files of this machine: not for browsers."""
SOURCES = ("urls", "preset", "document", "text", "system")
READ: Mapping[str, Callable[[str], Any]] = {
    "load": values.number("--load", 0),
    "repeat": values.whole("--repeat", 1, 10_000),
    "duration": values.time("--duration"),
    "warmup": values.time("--warmup"),
}
"""What a request may change of a run, as the command line reads it."""
KEYS = {
    *SOURCES,
    "form",
    "options",
    "name",
    "targets",
    "load",
    "duration",
    "warmup",
    "repeat",
    "thresholds",
    "capture",
    "fleet",
}


def parsed(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request to start a run, checked: either URLs with options, a preset, or a document."""
    if unknown := sorted(request.keys() - KEYS):
        raise Error(
            "ND-104-10", f"there is no parameter {unknown[0]!r}", fix=f"There are {', '.join(sorted(KEYS))}"
        )
    made = {k: v for k, v in request.items() if v not in (None, "", [], {})}
    if sum(key in made for key in SOURCES) != 1:
        raise Error(
            "ND-104-10", "it is not said what to run", fix="Give urls, preset, document, text or system"
        )
    if urls := made.pop("urls", None):
        # of our own making: of what a browser says nothing in it names a file
        made["typed"] = urls
        made["profile"] = from_urls(urls, made.pop("options", None) or {})
    elif system := made.pop("system", None):
        made |= from_form(system, made.pop("form", None) or {})
    elif "text" in made:
        made["document"] = config.parse_text(str(made.pop("text")), "profile")
    for key, read in READ.items():
        if key in made:
            made[key] = read(str(made[key]).strip())
    for key, kind in (("targets", dict), ("thresholds", list)):
        if not isinstance(made.get(key, kind()), kind):
            raise Error("ND-104-10", f"{key} has the wrong form", at=key)
    if "fleet" in made and "traced" in made:
        what = "ladders are of packets of this machine alone"
        raise Error("ND-104-07", what, at="fleet", fix="Leave the fleet out, or the ladders")
    return made


def from_form(system: Any, form: Any) -> dict[str, Any]:
    """The profile of a system's form, and what becomes of its capture."""
    found = next((one for one in SYSTEMS if one.name == system), None)
    if found is None or found.form is None or not isinstance(form, dict):
        raise Error("ND-104-22", f"there is no form {str(system)!r}", at="system")
    made = loaded(found.form.profile)(form)
    captured = loaded(found.form.capture)(made)
    return {"profile": made} | ({"traced": {"by": found.form.then, "capture": captured}} if captured else {})


def from_urls(urls: Any, options: Any) -> dict[str, Any]:
    """The profile of URLs and options, as `netdyno run URL` makes it."""
    listed = urls if isinstance(urls, list) else [urls]
    for one in listed:
        if not isinstance(one, str) or not quick.is_url(one):
            hint = quick.no_url(str(one))
            fix = hint.fix if hint else "Write it like http://HOST/ or mqtt://HOST"
            raise Error("ND-104-26", f"{str(one)[:80]!r} is not a URL", at="urls", fix=fix)
    if not isinstance(options, dict):
        raise Error("ND-104-10", "options are no object", at="options")
    given: dict[str, Any] = {}
    for name, value in options.items():
        one = OPTIONS.get(name)
        if one is None:
            raise Error(
                "ND-104-22",
                f"there is no option {name!r}",
                at="options",
                fix=f"There are {', '.join(OPTIONS)}",
            )
        if name in FILES or (name == "data" and any(str(part).startswith("@") for part in _several(value))):
            what = "a file of this machine cannot be named from a browser"
            raise Error("ND-104-16", what, at=one.flag, fix="Start this run on the command line")
        given[name] = _value(one, value)
    return quick.profile(listed, UrlOptions(**given))


def _several(value: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in (value if isinstance(value, list) else [value]))


def _value(one: UrlOption, value: Any) -> Any:
    """An option's value, as the command line reads it."""
    match one.value:
        case "whole":
            return values.whole(one.flag, one.least, one.most or values.MOST_WHOLE)(str(value).strip())
        case "quantity" if one.unit:
            return one.unit.text(str(value).strip(), one.flag)
        case "texts":
            return _several(value)
        case "flag" | "switch":
            return bool(value)
    return str(value)


def check(request: Mapping[str, Any]) -> None:
    """Refuse what cannot run; a document may name what a client over TCP may."""
    experiment, folder, confined = job.prepared(request)
    typed = request.get("typed")
    # of URLs the places are options, as on the command line
    place = (lambda _, at: quick.option_of(typed, at)) if typed else validation.in_leg
    job.fleets(request, experiment)
    validation.refuse(experiment, folder, place=place, confined=confined)


class Jobs:
    """Runs that this dashboard started."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._under_way: set[asyncio.subprocess.Process] = set()
        self._waits: set[asyncio.Task[None]] = set()

    async def start(self, request: Mapping[str, Any]) -> str:
        """Start a run and return its id once it is in the store; raises why when it never gets there."""
        made = parsed(request)
        await asyncio.to_thread(check, made)
        if len(self._under_way) >= AT_ONCE:
            what = f"{AT_ONCE} runs of this dashboard are under way"
            raise Error("ND-104-11", what, fix="Wait for one of them, or stop it")
        folder = files.make_folder(paths.state() / "web", private=True)
        name = secrets.token_hex(8)
        file, log = folder / f"{name}.json", folder / f"{name}.log"
        files.write(file, json.dumps(made | {"runs": str(self._runs.absolute())}))
        with files.open_private(log, "wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *python.module("netdyno.web.job", str(file)),
                stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
            )  # fmt: skip
        self._under_way.add(process)
        task = asyncio.create_task(self._follow(process, file, log))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)
        until = asyncio.get_running_loop().time() + WAIT
        while asyncio.get_running_loop().time() < until:
            if run := await asyncio.to_thread(_run_of, process.pid):
                return run
            if process.returncode is not None:
                raise _start_error(log)
            await asyncio.sleep(0.1)
        raise Error("ND-92-35", f"the run did not begin within {WAIT:g} s", at=str(log))

    async def _follow(self, process: asyncio.subprocess.Process, file: Path, log: Path) -> None:
        try:
            await process.wait()
        finally:
            self._under_way.discard(process)
        await asyncio.sleep(5.0)
        for path in (file, log):
            with contextlib.suppress(OSError):
                path.unlink()


def _run_of(pid: int) -> str:
    """The run of a process, if it has entered one."""
    with Store() as store:
        return next((run for run, owner in store.owners().items() if owner[0] == pid), "")


def _start_error(log: Path) -> Error:
    """Why a run did not begin."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    for line in reversed(lines):
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            if error := json.loads(line).get("error"):
                return Error.of(error)
    return Error("ND-92-35", f"the run did not begin: {' | '.join(lines[-3:]) or 'no word of why'}")


def stop(run: str) -> None:
    """End a run as Ctrl-C does: what was measured is kept."""
    with Store() as store:
        owner = store.owners().get(run)
    if owner is None or not proc.alive(*owner):
        raise Error("ND-104-11", "the run is not under way", at=run)
    try:
        os.kill(owner[0], signal.SIGINT)
    except PermissionError as e:
        raise Error("ND-92-30", "the run is another user's", at=run) from e


def steer(daemon: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Pause or resume what a daemon runs, or change its rate."""
    if not daemon:
        raise Error("ND-104-11", "no trial is under way", fix="Wait until the next one begins")
    with Client(daemon, timeout=10.0) as client:
        return dict(client.call(method, **params))
