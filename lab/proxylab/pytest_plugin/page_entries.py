"""The page entries of an item: collected while it runs, taken when pytest makes its report (see ``report_page``)."""

from typing import Final

import pytest

from proxylab.binary_identity import BinaryIdentity
from proxylab.pytest_plugin.items import CollectedRun
from proxylab.pytest_plugin.options import engine_of, report
from proxylab.pytest_plugin.outcome import Judged, explanation
from proxylab.report.html import Heading, PageEntry, entry
from proxylab.scenario.words import HOST
from proxylab.verdict.model import Judgement, on_kernel

_SHOWN: Final = pytest.StashKey[list[PageEntry]]()
_BAD: Final = pytest.StashKey[list[Judged]]()
NO_ENGINE: Final = "no engine"


def show(item: pytest.Item, heading: Heading, verdict: Judged) -> None:
    """Add a verdict to the page, if ``--lab-report`` is given."""
    if report(item.config) is not None:
        item.stash.setdefault(_SHOWN, []).append(entry(heading, verdict))
        if verdict.overall is not Judgement.PASS:
            item.stash.setdefault(_BAD, []).append(verdict)


def heading_of_test(item: pytest.Item) -> Heading:
    """The heading of a Python test's entries in the page, with or without a lab."""
    return Heading(file=item.location[0], engine=engine_of(item) or NO_ENGINE, case=item.name)


def heading_in_file(run: CollectedRun, release: str = "", binary: BinaryIdentity | None = None) -> Heading:
    """The heading of the probes of a scenario, or of a case of it.

    ``release`` is that of the lab's kernel, and ``binary`` the one that ran as the proxy.
    """
    scenario = run.scenario
    return Heading(
        file=scenario.file,
        engine=on_kernel(run.engine, run.kernel),
        kernel=release if run.kernel != HOST else "",
        binary=str(binary or ""),
        case=scenario.case.id,
        scenario=scenario.name,
        description=scenario.description,
        tags=scenario.tags,
    )


def taken(item: pytest.Item) -> list[PageEntry]:
    """The entries of an item since the last call."""
    shown = item.stash.get(_SHOWN, [])
    item.stash[_SHOWN] = []
    return shown


def is_explained(item: pytest.Item, words: str) -> bool:
    """Whether the text contains the explanation of a verdict that the page already has."""
    return any(explanation(verdict) in words for verdict in item.stash.get(_BAD, ()))
