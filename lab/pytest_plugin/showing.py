"""What of an item is to be seen in the page of a run.

Owns: the entries of an item, until its report is made, and where they stand in the page.
Must not: know how they come there (``gathering`` does), or import a run's own rooms before an item runs.
"""

from typing import TYPE_CHECKING, Final

import pytest

from lab.pytest_plugin.options import report
from lab.report.html import Heading, entry

if TYPE_CHECKING:
    from lab.report.html import Entry
    from lab.scenario.model import Scenario
    from lab.verdict.model import ProbeVerdict, StepVerdict

__all__ = ["heading_in_file", "show_of_file", "show_of_test", "taken"]

_SHOWN: Final = pytest.StashKey[list["Entry"]]()


def show_of_file(item: pytest.Item, scenario: "Scenario", engine: str, verdict: "ProbeVerdict | StepVerdict") -> None:
    """Show the verdict of a probe or step of a scenario file, if there is to be a page."""
    if report(item.config) is not None:
        _show(item, heading_in_file(scenario, engine), verdict)


def show_of_test(item: pytest.Item, scenario: "Scenario", engine: str, verdict: "ProbeVerdict") -> None:
    """Show a verdict of a Python test below the test's own file and name, if there is to be a page."""
    if report(item.config) is not None:
        file, name = item.location[0], item.name
        _show(item, Heading(file=file, engine=engine, case=name, scenario=scenario.name, tags=scenario.tags), verdict)


def heading_in_file(scenario: "Scenario", engine: str) -> "Heading":
    """Where the probes of a scenario, or of a case of it, stand in the page."""
    return Heading(
        file=scenario.file,
        engine=engine,
        case=scenario.case.id,
        scenario=scenario.name,
        description=scenario.description,
        tags=scenario.tags,
    )


def taken(item: pytest.Item) -> list["Entry"]:
    """What was shown of an item since this was asked last."""
    shown = item.stash.get(_SHOWN, [])
    item.stash[_SHOWN] = []
    return shown


def _show(item: pytest.Item, heading: "Heading", verdict: "ProbeVerdict | StepVerdict") -> None:
    item.stash.setdefault(_SHOWN, []).append(entry(heading, verdict))
