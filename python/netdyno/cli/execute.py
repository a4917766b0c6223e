"""What `demo` and `run` share: choose the views, run the experiment, write the outputs, say the verdict."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdyno import files, paths
from netdyno.cli import console, summary
from netdyno.cli.options import Outputs
from netdyno.cli.plain import PlainLines
from netdyno.cli.stream import JsonStream
from netdyno.core import redaction
from netdyno.core.address import Address
from netdyno.core.result import Result
from netdyno.errors import INTERRUPTED, PASS, Error
from netdyno.experiment import validation
from netdyno.experiment.measurer import FleetCore
from netdyno.experiment.resume import EarlierRun
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.schedule import Schedule
from netdyno.experiment.spec import Experiment
from netdyno.experiment.verdict import exit_code
from netdyno.experiment.view import Live, Plan
from netdyno.export import junit
from netdyno.store import Store
from netdyno.store.store import find_result
from netdyno.system import environment, journal
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import DAMAGED
from netdyno.system.undo import FORCE

if TYPE_CHECKING:
    from netdyno.export.prometheus import Exporter


@dataclass
class Views:
    """Several views as one. A view that fails is left out; the run goes on."""

    views: list[Live] = field(default_factory=list)

    def _each(self, call: str, *arguments: Any) -> None:
        for view in list(self.views):
            try:
                getattr(view, call)(*arguments)
            except (Error, KeyboardInterrupt):
                raise
            except OSError as e:
                # whoever read it has had enough, or there is no room for it
                self.views.remove(view)
                if isinstance(view, JsonStream):
                    console.discard_output(e)
            except Exception as e:  # noqa: BLE001 - what is watched matters more than who watches
                self.views.remove(view)
                console.note(f"a view was given up: {type(e).__name__}: {e}")

    def start(self, plan: Plan) -> None:
        """A trial begins."""
        self._each("start", plan)

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series."""
        self._each("sample", sample)

    def state(self, status: dict[str, Any]) -> None:
        """A change of state."""
        self._each("state", redaction.hide_in(status))

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test."""
        self._each("dut", name, cpu)

    def log(self, line: str) -> None:
        """A line."""
        self._each("log", redaction.hide(line))

    def close(self) -> None:
        """The end."""
        self._each("close")


def execute(
    experiment: Experiment,
    base: Path,
    outputs: Outputs,
    socket: Address | None = None,
    place: validation.Placing = validation.in_leg,
    schedule: Schedule | None = None,
    resume: str | None = None,
    abort_on_fail: bool = False,
    confined: bool = False,
    fleets: Mapping[str, FleetCore] | None = None,
    then: Callable[[Result, Path], None] = lambda _, __: None,
    watch: Sequence[Live] = (),
    show: Callable[[Result, Path], None] | None = None,
) -> int:
    """Run it and return the exit code; without a `schedule` each variant as often as it says.

    `then` is given the result and the folder of the run before its files go to where they are wanted.
    `watch`: further views. `show` prints the result in place of the summary and the JSON of a run.
    """
    validation.refuse(experiment, base, socket, place, confined)
    earlier = EarlierRun(find_result(resume), environment.collect()) if resume else None
    for file in filter(None, (outputs.html, outputs.junit, outputs.markdown)):
        files.check_place(file)
    put_back()
    views, stream, exporter = Views(), JsonStream(), _exporter(outputs.prometheus)
    if outputs.json_stream:
        views.views.append(stream)
    elif not outputs.quiet:
        views.views.append(_terminal(outputs))
    if exporter:
        views.views.append(exporter)
    views.views += watch
    result, folder = measure(
        experiment, base, outputs, views, socket=socket, schedule=schedule, earlier=earlier,
        abort_on_fail=abort_on_fail, confined=confined, fleets=fleets,
    )  # fmt: skip
    with console.tolerate_closed_stdout():
        if outputs.json_stream:
            stream.result(result)
        elif show:
            show(result, folder)
        elif outputs.json:
            console.document(result.model_dump(mode="json"))
        else:
            summary.show(result, folder)
    code = exit_code(result)
    try:
        try:
            then(result, folder)
        finally:
            _write(result, folder, outputs)
        if exporter:
            exporter.result(result)
            if outputs.prometheus and not exporter.served:
                exporter.write(Path(outputs.prometheus))
    except Error as e:
        # a verdict that is no pass is not lost behind a file that could not be written
        if code == PASS or e.exit_code == INTERRUPTED:
            raise
        console.show(e)
    _warn_of_secrets(result)
    if result.error:
        console.show(_where_written(Error.of(result.error), result, place))
    return code


def _where_written(error: Error, result: Result, place: validation.Placing) -> Error:
    """An error of a trial at the place that the user wrote: an option, a URL, a file."""
    if place is validation.in_leg or len(result.legs) != 1:
        return error

    def written(at: str) -> str:
        return place(result.legs[0].name, at) if at.startswith("groups[") else at

    # several groups may have been made of one URL
    findings = [{**one, "at": written(str(one.get("at") or ""))} for one in error.all]
    once = [one for i, one in enumerate(findings) if one not in findings[:i]]
    return replace(error, at=written(error.at), all=once if len(once) > 1 else ())


def measure(
    experiment: Experiment,
    base: Path,
    outputs: Outputs,
    views: Views,
    *,
    socket: Address | None = None,
    schedule: Schedule | None = None,
    earlier: EarlierRun | None = None,
    abort_on_fail: bool = False,
    confined: bool = False,
    fleets: Mapping[str, FleetCore] | None = None,
) -> tuple[Result, Path]:
    """Run what was checked before; its result and folder."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store()) if outputs.store else None
        interrupts = stack.enter_context(Interrupts().installed())
        stack.callback(views.close)
        experiment_run = ExperimentRun(
            experiment=experiment,
            base=base,
            runs=outputs.runs or paths.runs(),
            live=views,
            interrupts=interrupts,
            store=store,
            command=["netdyno", *sys.argv[1:]],
            socket=socket,
            schedule=schedule,
            earlier=earlier,
            abort_on_fail=abort_on_fail,
            confined=confined,
            fleets=fleets or {},
        )
        return experiment_run.run()


def _warn_of_secrets(result: Result) -> None:
    """Say that what is to be sent around holds what nobody else should know."""
    captures = [one.capture for leg in result.legs for one in leg.repetitions if one.capture]
    if places := list(dict.fromkeys(place for capture in captures for place in capture.secrets)):
        console.note(f"the capture holds secrets ({', '.join(places)}): do not send it around")


def put_back() -> None:
    """Undo what a killed run left, before anything new is changed."""
    report = journal.restore()
    for line in report.undone:
        console.note(f"put back what an earlier run left: {line}")
    for line in report.failed:
        console.error(f"ND-92-31: left by an earlier run and not put back: {line}")
    for path, what in report.damaged.items():
        console.error(f"ND-92-31: at {path}: left by an earlier run: {what}. {DAMAGED}")
    for line in report.left:
        console.note(f"not put back after an earlier run: {line}; {FORCE}")
    for line in report.gone:
        console.note(f"not put back after an earlier run: {line}")


def _terminal(outputs: Outputs) -> Live:
    if not outputs.json and sys.stdout.isatty() and sys.stderr.isatty():
        from netdyno.cli.live import Live as RichLive

        return RichLive()
    return PlainLines()


def _exporter(where: str | None) -> Exporter | None:
    """What makes metrics of the run, if they are wanted; served from now on if they are to be."""
    if where is None:
        return None
    # loaded here, for runs without it to start sooner
    from netdyno.export.prometheus import Exporter, is_address

    exporter = Exporter()
    if is_address(where):
        exporter.serve(where)
    return exporter


def _write(result: Result, folder: Path, outputs: Outputs) -> None:
    if outputs.html and (folder / "report.html").exists():
        files.copy(folder / "report.html", outputs.html)
    if outputs.keep and result.error is None:
        # a part of the report that other verbs need nothing of
        from netdyno.report.compact import keep

        for path in keep(result, outputs.keep):
            console.note(f"kept: {path}")
    if outputs.junit:
        junit.write(result, outputs.junit)
    if outputs.markdown:
        # loaded here, for runs without it to start sooner
        from netdyno.export import markdown

        markdown.write(markdown.summary(result), outputs.markdown)
    if outputs.csv:
        files.make_folder(outputs.csv)
        for name in (result.files.series, result.files.flows):
            if name and (folder / name).exists():
                files.copy(folder / name, outputs.csv / name)
