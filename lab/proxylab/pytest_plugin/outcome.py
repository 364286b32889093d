"""What pytest is told of verdicts and errors.

Owns: the outcome of an item by its verdict, its words, its properties in reports, and the file of its frames.
Must not: know where verdicts come from (``fixtures`` and ``in_python`` do), or import a run's own rooms before an item
runs.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from proxylab.client.bundles import pcap_file
from proxylab.errors import CapabilityError, EngineError, LabEndedError, ScenarioError
from proxylab.pytest_plugin.interactive_options import pcap_directory
from proxylab.pytest_plugin.options import seed
from proxylab.report.pcapng import pcapng
from proxylab.verdict.explain import explain
from proxylab.verdict.model import Judgement

if TYPE_CHECKING:
    from proxylab.client.open_lab import OpenLab
    from proxylab.verdict.model import ProbeVerdict, StepVerdict

    Judged = ProbeVerdict | StepVerdict

__all__ = ["explanation", "hold", "in_its_own_words", "leave_pcap", "record", "warn", "why_skipped"]


def hold(lab_verdict: "Judged") -> None:
    """What an item calls: a verdict that is neither skip nor inconclusive is pass or fail."""
    if lab_verdict.overall is not Judgement.PASS:
        pytest.fail(explanation(lab_verdict), pytrace=False)


def explanation(verdict: "Judged") -> str:
    """Plain lines, of which the first begins with the place in the file."""
    return "\n".join(explain(verdict))


def why_skipped(verdict: "Judged") -> str:
    """What the machine lacks for it."""
    return "; ".join(reason for each in verdict.verdicts for reason in each.reasons)


@contextmanager
def in_its_own_words(netns_name: str) -> Iterator[None]:
    """A traceback explains nothing to the author of a scenario; only our own mistakes keep theirs."""
    try:
        yield
    except CapabilityError as error:
        pytest.skip(f"needs {error.missing}; {error.cure}")
    except (EngineError, ScenarioError, LabEndedError) as error:
        # What is said is all of the error; beside it pytest would print the one that it comes from.
        raise pytest.fail.Exception(f"{netns_name}: {error}" if netns_name else str(error), pytrace=False) from None


def record(item: pytest.Item, lab_open: "OpenLab", engine: str, verdict: "Judged") -> None:
    """What a reader of reports sorts by, as properties: JUnit writes them beside the item, pytest-html shows them."""
    properties = {
        "engine": engine,
        "iptables": lab_open.built.variant,
        "kernel": platform.release(),
        "scenario": lab_open.scenario.name,
        "seed": seed(item.config),
    }
    known = {name for name, _ in item.user_properties}
    item.user_properties += [(name, value) for name, value in properties.items() if name not in known]
    item.user_properties.append(("verdict", verdict.overall.value))
    if verdict.bundle:
        item.user_properties.append(("bundle", verdict.bundle))


def leave_pcap(item: pytest.Item, lab_open: "OpenLab", verdict: "Judged", number: int = 0) -> None:
    """Leave the frames of an item's probe as a file, and say in the reports where."""
    name = f"{item.nodeid} {number}" if number else item.nodeid
    try:
        file = pcap_file(pcap_directory(item.config), name, pcapng(lab_open.capture(verdict).frames))
    except OSError as error:
        warn(item, f"no frames are kept of {name!r}: {error}")
    else:
        item.user_properties.append(("pcap", str(file)))


def warn(item: pytest.Item, message: str) -> None:
    """Say something in pytest's summary of warnings."""
    item.warn(pytest.PytestWarning(message))
