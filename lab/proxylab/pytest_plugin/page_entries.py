"""The page entries of an item: collected while it runs, taken when pytest makes its report (see ``report_page``)."""

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from proxylab.pytest_plugin.options import engine_of, report
from proxylab.pytest_plugin.outcome import explanation
from proxylab.report.html import Heading, entry
from proxylab.verdict.model import Judgement

if TYPE_CHECKING:
    from proxylab.report.html import Entry
    from proxylab.scenario.model import Scenario
    from proxylab.verdict.model import ProbeVerdict, StepVerdict

__all__ = ["NO_ENGINE", "heading_in_file", "heading_of_test", "is_explained", "show_of_file", "show_of_test", "taken"]

_SHOWN: Final = pytest.StashKey[list["Entry"]]()
_BAD: Final = pytest.StashKey[list["ProbeVerdict | StepVerdict"]]()
NO_ENGINE: Final = "no engine"


def show_of_file(item: pytest.Item, scenario: "Scenario", engine: str, verdict: "ProbeVerdict | StepVerdict") -> None:
    """Add the verdict of a scenario file's probe or step to the page, if ``--lab-report`` is given."""
    if report(item.config) is not None:
        _show(item, heading_in_file(scenario, engine), verdict)


def show_of_test(item: pytest.Item, scenario: "Scenario", engine: str, verdict: "ProbeVerdict | StepVerdict") -> None:
    """Add a verdict of a Python test to the page, under the test's file and name, if ``--lab-report`` is given."""
    if report(item.config) is not None:
        heading = replace(heading_of_test(item), engine=engine, scenario=scenario.name, tags=scenario.tags)
        _show(item, heading, verdict)


def heading_of_test(item: pytest.Item) -> Heading:
    """The heading of a Python test's entries in the page, with or without a lab."""
    return Heading(file=item.location[0], engine=engine_of(item) or NO_ENGINE, case=item.name)


def heading_in_file(scenario: "Scenario", engine: str) -> "Heading":
    """The heading of the probes of a scenario, or of a case of it."""
    return Heading(
        file=scenario.file,
        engine=engine,
        case=scenario.case.id,
        scenario=scenario.name,
        description=scenario.description,
        tags=scenario.tags,
    )


def taken(item: pytest.Item) -> list["Entry"]:
    """The entries of an item since the last call."""
    shown = item.stash.get(_SHOWN, [])
    item.stash[_SHOWN] = []
    return shown


def is_explained(item: pytest.Item, words: str) -> bool:
    """Whether the text contains the explanation of a verdict that the page already has."""
    return any(explanation(verdict) in words for verdict in item.stash.get(_BAD, ()))


def _show(item: pytest.Item, heading: "Heading", verdict: "ProbeVerdict | StepVerdict") -> None:
    item.stash.setdefault(_SHOWN, []).append(entry(heading, verdict))
    if verdict.overall is not Judgement.PASS:
        item.stash.setdefault(_BAD, []).append(verdict)
