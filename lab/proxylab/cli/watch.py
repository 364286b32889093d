"""``proxylab watch``: a lab stands while the user edits its scenario; each save is applied and judged at once.

A save changes objects and sysctls in place, and only the probes that it concerns run again (``client.edit`` decides
both). What needs another network gets a new lab. A file with mistakes changes nothing.

The file is looked at every 50 ms. That also works where editors replace the file, and on file systems without inotify.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from proxylab.cli.case_option import CaseId, ScenarioFile, choose_case
from proxylab.cli.engine_options import EngineOptions
from proxylab.cli.options import takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, changes_in_colour, paint, terminal_width, wants_color
from proxylab.client.edit import Edit, concerned
from proxylab.client.kept_labs import KeptLabs
from proxylab.client.open_lab import OpenLab
from proxylab.client.scenario_run import judged
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import ExitCode, LabError
from proxylab.report.failure_text import explain
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.verdict.model import UNRESOLVED, Judgement

_LOOK_SECONDS: Final = 0.05


@click.command("watch", short_help="Judge a scenario again at each save, in a lab that stands.")
@takes
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    file: ScenarioFile,
    case_id: CaseId,
    options: EngineOptions,
    color: Color,
) -> ExitCode:
    """Build the lab of the scenario FILE, judge its probes, and do so again at each save, until Ctrl-C.

    A save changes the lab in place, and only the probes that the change concerns run. A change of the network builds a
    new lab. A file with mistakes leaves the lab as it is. Other terminals can use the lab meanwhile.

    Example: proxylab watch my-first.lab.yaml
    """
    kept, saves = KeptLabs(), _Saves(file)
    with (make_session or Session)(options.announced_choice(), 0, kept.control_socket) as session:
        watched = _Watched(session, kept, color)
        load = partial(choose_case, file, case_id, mode_of(options.engine), version_of(options.engine))
        watched.bring_to(load())
        try:
            while saves.wait(watched.raise_if_gone):
                try:
                    watched.bring_to(load())
                except (LabError, click.UsageError) as error:
                    watched.tell([f"{click.style('error', fg='red')}  {error}"])
        except KeyboardInterrupt:
            echo("\nthe lab is gone", err=True)
    return ExitCode.OK


class _Saves:
    """The saves of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = self._now()

    def _now(self) -> tuple[int, ...]:
        """What a save changes; empty while an editor replaces the file."""
        try:
            found = os.stat(self._file)  # noqa: PTH116 - as for any file, and three numbers of one call
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def wait(self, meanwhile: Callable[[], None]) -> bool:
        """Return true after a save: when the file differs, and two looks in a row see the same.

        ``meanwhile`` is called at each look; what it raises ends the wait.
        """
        before = self._seen
        while (now := self._now()) in ((), self._seen) or now != before:
            before = now
            meanwhile()
            select.select([], [], [], _LOOK_SECONDS)
        self._seen = now
        return True


class _Watched:
    """The lab of a scenario that its author edits, and the last verdict on each of its probes and steps."""

    def __init__(self, session: Session, kept: KeptLabs, color: str) -> None:
        self._session = session
        self._kept = kept
        self._color = color
        self._lab: OpenLab | None = None
        self._found: dict[str, Judgement] = {}

    def tell(self, lines: Sequence[str]) -> None:
        """Print lines, in colour where the user wants it."""
        if lines:
            echo("\n".join(lines), color=wants_color(sys.stdout, self._color))

    def raise_if_gone(self) -> None:
        """Raise ``LabEndedError`` if a process of the lab has ended."""
        if self._lab is not None:
            self._lab.connection.raise_if_gone("take the next save")

    def bring_to(self, wanted: Scenario) -> None:
        """Bring the lab to the scenario, and judge the probes and steps that the change concerns.

        Raises:
            LabError: what ``Session.open``, ``OpenLab.bring_to`` and ``OpenLab.probe`` raise. Then the next scenario
                gets a new lab.
        """
        began = time.monotonic()
        lab, self._lab = self._lab, None
        found = None if lab is None or not lab.is_open else _edit(lab, wanted)
        if lab is None or found is None:
            lab, chosen = self._new(wanted), wanted.judged
        else:
            self.tell(changes_in_colour(found.changes) if found.changes else [])
            before = lab.scenario
            chosen = concerned(before, found.scenario, found.advance)
            if any(lab.is_past(each) for each in before.judged):  # its steps have changed it
                lab = self._new(wanted)
            else:
                lab.bring_to(found)
                self._kept.open_control_socket(lab, None)
        self._judge(lab, [each for each in lab.scenario.judged if each.name in {one.name for one in chosen}])
        self._lab = lab
        known = [each.name for each in lab.scenario.judged]
        self._found = {name: self._found[name] for name in known if name in self._found}
        counts = [f"{list(self._found.values()).count(each)} {paint(each, each)}" for each in Judgement]
        counts = [each for each in counts if not each.startswith("0 ")]
        ran = f"{len(chosen)} of {len(known)} ran in {time.monotonic() - began:.2f} s"
        self.tell([f"{', '.join(counts)}: {ran}"])

    def _new(self, wanted: Scenario) -> OpenLab:
        lab = self._session.open(wanted)
        first, *more = self._kept.hold(lab)
        if not self._found:
            self.tell([first, *more])
        return lab

    def _judge(self, lab: OpenLab, chosen: Sequence[Probe | Step]) -> None:
        width = terminal_width()
        for each in chosen:
            verdict = judged(lab, each, None, lambda _: None)
            self._found[each.name] = verdict.overall
            word = paint(verdict.overall.ljust(4), verdict.overall)
            if verdict.overall in UNRESOLVED:
                self.tell(explain(verdict, width))
            else:
                self.tell([f"{word}  {each.name}"])


def _edit(lab: OpenLab, wanted: Scenario) -> Edit | None:
    """The change that makes the lab the scenario's; ``None`` if that needs a new network."""
    found = lab.edit(wanted)
    return None if found.refused else found
