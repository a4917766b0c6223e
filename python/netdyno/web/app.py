"""The dashboard as an application: its routes, and what each answers."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from netdyno import __version__, units
from netdyno.cli.report import rejudged, stored_page
from netdyno.core.redaction import hide
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.lazy import loaded
from netdyno.report import runs as comparison
from netdyno.stats import runs as differences
from netdyno.store import Store, trusted
from netdyno.systems import SYSTEMS
from netdyno.web import assets, experiments, follow, profiles, run_views, start, trend
from netdyno.web.access import OPERATOR, Access
from netdyno.web.bodies import body
from netdyno.web.guard import Guard, address, failure, secure_name
from netdyno.web.hub import Hub, Stream
from netdyno.web.sources import Look, RunList, RunSource

LIST, LIVE = 1.0, 0.1
"""Seconds between two looks at the store, and at the files of a run under way."""
SHEET = "sandbox allow-scripts allow-downloads allow-popups; frame-ancestors 'none'; "
"""Policy of reports before their own, which allows exactly their scripts: a page without our origin."""
_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Answer = Callable[[Request], Awaitable[Response]]


@dataclass
class Dashboard:
    """What the routes share."""

    access: Access
    jobs: start.Jobs
    cookie: str
    secure: bool
    hub: Hub

    # ---- who is there ----

    def _cookie_of(self, request: Request) -> tuple[str, bool]:
        """The cookie of a page, and whether it goes over TLS alone: as the page came, from us or through a
        reverse proxy. One without TLS has its own: browsers do not let it replace the other."""
        secure = self.secure or request.headers.get("origin", "").startswith("https://")
        return (secure_name(self.cookie) if secure else self.cookie), secure

    async def log_in(self, request: Request) -> Response:
        """A token for a cookie."""
        token = (await body(request)).get("token")
        shown = token if isinstance(token, str) else ""
        role, value, key = self.access.log_in(shown, address(request.scope))
        answer = JSONResponse({"role": role, "key": key})
        name, secure = self._cookie_of(request)
        answer.set_cookie(name, value, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    async def log_out(self, request: Request) -> Response:
        """Forget this browser."""
        name, secure = self._cookie_of(request)
        self.access.log_out(request.cookies.get(name, ""))
        answer = JSONResponse({})
        answer.delete_cookie(name, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    async def about(self, request: Request) -> Response:
        """Who is logged in, and where."""
        return JSONResponse({"role": request.state.role, "version": __version__, "host": os.uname().nodename})

    # ---- runs ----

    async def list_stream(self, _: Request) -> Any:
        """The runs, as they change."""
        return self.hub.channel("runs", RunList, LIST)

    async def run_stream(self, request: Request) -> Any:
        """A run under way, as it goes."""
        run = _name(request)
        folder = await asyncio.to_thread(_folder, run)
        return self.hub.channel(f"run {run}", lambda: RunSource(run, folder), LIVE)

    async def run(self, request: Request) -> Response:
        """A run: its row, its files and, when it is over, its verdict and charts."""
        run = _name(request)
        leg, trial = (_count(request, name) for name in ("leg", "trial"))
        operator = request.state.role == OPERATOR
        return JSONResponse(await asyncio.to_thread(_run, run, leg, trial, operator))

    async def profile(self, request: Request) -> Response:
        """The profile of a run, to run again."""
        run = _name(request)
        return JSONResponse(await asyncio.to_thread(_profile, run))

    async def remove(self, request: Request) -> Response:
        """Forget a run; its folder stays where it is."""
        run = _name(request)
        await asyncio.to_thread(_forget, run)
        return JSONResponse({})

    async def file(self, request: Request) -> Response:
        """A file of a run, to download."""
        run, name = _name(request), request.path_params["name"]
        operator = request.state.role == OPERATOR
        if name == "result.json":
            text = await asyncio.to_thread(_document, run)
            return Response(text, media_type="application/json", headers=_attached(f"{run}.json"))
        folder = await asyncio.to_thread(_folder, run)
        if name not in {one["name"] for one in run_views.files(folder, operator)}:
            raise Error("ND-104-25", "the run has no such file", at=name[:200])
        kind = {"csv": "text/csv", "json": "application/json"}.get(name.rpartition(".")[2])
        return FileResponse(
            folder / name, media_type=kind or "application/octet-stream", headers=_attached(f"{run}-{name}")
        )

    async def report(self, request: Request) -> Response:
        """The report of a run: a page by itself, which has no rights here."""
        run = _name(request)
        return _sheet(await asyncio.to_thread(_report, run))

    async def compare(self, request: Request) -> Response:
        """The page of two runs."""
        a, b = request.query_params.get("a", ""), request.query_params.get("b", "")
        return _sheet(await asyncio.to_thread(_compared, a, b))

    async def start(self, request: Request) -> Response:
        """Start a run."""
        return JSONResponse({"run": await self.jobs.start(await body(request))})

    async def stop(self, request: Request) -> Response:
        """End a run as Ctrl-C does."""
        await asyncio.to_thread(start.stop, _name(request))
        return JSONResponse({})

    async def rate(self, request: Request) -> Response:
        """Change the rate of a run under way: `{group, rate, of?}`."""
        asked = await body(request)
        group, rate, of = (asked.get(key) for key in ("group", "rate", "of"))
        if not isinstance(group, str) or not isinstance(rate, str) or not isinstance(of, str | None):
            raise Error(
                "ND-104-10", "group, rate and of are texts", fix='Give {"group": "web", "rate": "200/s"}'
            )
        rate = units.RATE.text(rate.strip(), "rate")
        wanted = {"rate": rate} | ({"of": of} if of else {})
        return await self.steer(request, "run.rate", groups={group: wanted})

    async def of_system(self, request: Request, where: str) -> Any:
        """What a system answers."""
        return await asyncio.to_thread(loaded(where), await body(request))

    async def look(self, request: Request, where: str) -> Any:
        """What a system shows."""
        return await asyncio.to_thread(loaded(where), dict(request.query_params))

    async def look_stream(self, request: Request, where: str) -> Any:
        """What a system shows, as it changes: read once for all browsers."""
        asked = dict(request.query_params)
        name = json.dumps([where, sorted(asked.items())])
        return self.hub.channel(name, lambda: Look(loaded(where), asked), LIST)

    async def steer(self, request: Request, method: str, **params: Any) -> Response:
        """Pause or resume a run, or change its rate."""
        run = _name(request)
        folder = await asyncio.to_thread(_folder, run)
        daemon = await asyncio.to_thread(follow.daemon, folder)
        return JSONResponse(await asyncio.to_thread(start.steer, daemon, method, params))


def _name(request: Request) -> str:
    run = str(request.path_params["run"])
    if not _NAME.fullmatch(run):
        raise Error("ND-104-25", "it is not the name of a run")
    return run


def _count(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _sheet(text: str) -> Response:
    own = _POLICY.search(text)
    policy = SHEET + (html.unescape(own[1]) if own else "default-src 'none'")
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


def _folder(run: str) -> Path:
    with Store() as store:
        return store.folder(run)


def _result(run: str) -> Result:
    with Store() as store:
        result = store.get(run)
    if result.verdict == "none" and not result.finished:
        rejudged(result)
    return result


def _run(run: str, leg: int, trial: int, operator: bool) -> dict[str, Any]:
    with Store() as store:
        row = next((one for one in store.rows() if one.id == run), None)
    if row is None:
        raise Error("ND-104-25", f"there is no run {run!r}", fix="It may have been removed")
    found: dict[str, Any] = {
        "row": run_views.row(row),
        "files": run_views.files(Path(row.folder), operator),
        "sections": run_views.sections(Path(row.folder)),
        "run": None,
    }
    with trusted(run):
        result = _result(run) if row.state != "running" or row.trials else None
        if row.state != "running":
            assert result
            found["run"] = run_views.run(result, leg, trial)
            found["again"] = run_views.profile(Path(row.folder), result) is not None
        else:
            found["hosts"] = run_views.hosts(row)
            if result:
                found["legs"] = experiments.so_far(result)
        found["networks"] = run_views.networks(Path(row.folder), result, found["run"])
    return found


def _profile(run: str) -> dict[str, Any]:
    with trusted(run):
        found = run_views.profile(_folder(run), _result(run))
    if found is None:
        what = "the run has no profile that could be run from a browser"
        raise Error("ND-104-25", what, at=run, fix="Repeat its command on the command line")
    return found


def _forget(run: str) -> None:
    with Store() as store:
        if run in store.owners() and any(one.id == run and one.state == "running" for one in store.rows()):
            raise Error("ND-104-11", "the run is under way", at=run, fix="Stop it first")
        store.delete(run)


def _document(run: str) -> str:
    folder = _folder(run) / "result.json"
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            return folder.read_text()
    return _result(run).model_dump_json(indent=2)


def _report(run: str) -> str:
    with trusted(run):
        return stored_page(run)[0]


def _compared(a: str, b: str) -> str:
    for one in (a, b):
        if not _NAME.fullmatch(one):
            raise Error(
                "ND-104-25", "it is not the name of a run", at=one[:200], fix="Choose two runs of the list"
            )
    with trusted(f"{a} and {b}"):
        first, second = _result(a), _result(b)
        found = differences.compare(first, second, [], 0.05)
        legs = [(x, y, list(found.legs[x.name])) for x, y in found.paired]
        return comparison.render(first, second, legs, found.searches, found.environment, 0.05)


def _endpoint(answer: Callable[..., Awaitable[Any]]) -> Answer:
    """Errors as answers; what nobody foresaw is told without its inside."""

    async def endpoint(request: Request) -> Response:
        try:
            found = await answer(request)
        except RecursionError:
            return failure(Error("ND-104-32", "the request is nested too deeply", fix="Send less"))
        except Error as e:
            return failure(Error.of({**e.as_dict(), "what": hide(e.what)}))
        return found if isinstance(found, Response) else JSONResponse(found)

    return endpoint


class _Streaming:
    """A route that answers with a stream: `Route` calls an application as it is."""

    def __init__(self, channel: Callable[[Request], Awaitable[Any]]) -> None:
        self._channel = channel

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            found = await self._channel(Request(scope, receive))
            await Stream(found, scope["state"]["session"])(scope, receive, send)
        except Error as e:
            await failure(e)(scope, receive, send)


async def _page(request: Request) -> Response:
    return assets.answer(request, "index.html")


async def _asset(request: Request) -> Response:
    return assets.answer(request, str(request.path_params["name"]))


def application(
    access: Access,
    jobs: start.Jobs,
    origins: Iterable[str],
    port: int,
    scheme: str = "http",
    addresses: bool = False,
) -> ASGIApp:
    """The whole of it; `origins` and `addresses` as the guard has them."""
    one = Dashboard(access, jobs, f"netdyno_{port}", scheme == "https", Hub())

    def route(path: str, answer: Callable[..., Awaitable[Any]], *methods: str) -> Route:
        return Route(path, _endpoint(answer), methods=list(methods or ("GET",)))

    routes = [
        Route("/", _page),
        Route("/assets/{name}", _asset),
        route("/api/login", one.log_in, "POST"),
        route("/api/logout", one.log_out, "POST"),
        route("/api/about", one.about),
        Route("/api/runs", _Streaming(one.list_stream), methods=["GET"]),
        Route("/api/runs/{run}/live", _Streaming(one.run_stream), methods=["GET"]),
        route("/api/runs/{run}", one.run),
        route("/api/runs/{run}", one.remove, "DELETE"),
        route("/api/runs/{run}/profile", one.profile),
        route("/api/runs/{run}/files/{name}", one.file),
        route("/api/runs/{run}/stop", one.stop, "POST"),
        route("/api/runs/{run}/pause", partial(one.steer, method="run.pause"), "POST"),
        route("/api/runs/{run}/resume", partial(one.steer, method="run.resume"), "POST"),
        route("/api/runs/{run}/rate", one.rate, "POST"),
        route("/api/start", one.start, "POST"),
        *(
            route(f"/api/{system.name}/{name}", partial(one.of_system, where=where), "POST")
            for system in SYSTEMS
            for name, where in system.answers.items()
        ),
        *(
            one_route
            for system in SYSTEMS
            for name, where in system.looks.items()
            for one_route in (
                route(f"/api/{system.name}/{name}", partial(one.look, where=where)),
                Route(
                    f"/api/{system.name}/{name}/live",
                    _Streaming(partial(one.look_stream, where=where)),
                    methods=["GET"],
                ),
            )
        ),
        route("/report/{run}", one.report),
        route("/compare", one.compare),
        *(route(*entry) for entry in (*profiles.ROUTES, *experiments.ROUTES, *trend.ROUTES)),
    ]

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(assets.all_assets)
        yield

    return Guard(Starlette(routes=routes, lifespan=life), access, origins, port, scheme, addresses)
