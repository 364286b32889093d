"""Verdicts and errors as pytest outcomes: an item's result, its message, its report properties and its pcapng file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from proxylab.client.bundles import pcap_file
from proxylab.client.open_lab import OpenLab
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import BuildError, CapabilityError, EngineError, LabEndedError, ProgramError, ScenarioError
from proxylab.protocol.messages import Built
from proxylab.pytest_plugin.options import pcap_directory, seed
from proxylab.report.failure_text import explain
from proxylab.report.pcapng import pcapng
from proxylab.scenario.model import Scenario
from proxylab.scenario.words import HOST
from proxylab.text import printable
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict

Judged = ProbeVerdict | StepVerdict

BINARY: Final = "binary"
"""The property that says which binary ran as the proxy."""


def hold(lab_verdict: Judged) -> None:
    """The test function of every item: fail unless the verdict is pass."""
    if lab_verdict.overall is not Judgement.PASS:
        pytest.fail(explanation(lab_verdict), pytrace=False)


def explanation(verdict: Judged) -> str:
    """Plain lines; the first begins with the position in the file."""
    return printable("\n".join(explain(verdict)))


def why_skipped(verdict: Judged) -> str:
    """The capabilities that the machine lacks, or what the engine's mode does."""
    return "; ".join(dict.fromkeys(reason for each in verdict.verdicts for reason in each.reasons))


@contextmanager
def in_its_own_words(position: str) -> Iterator[None]:
    """Turn an error into a skip or a failure without a traceback; only bugs of proxylab keep theirs."""
    try:
        yield
    except CapabilityError as error:
        pytest.skip(printable(f"needs {error.missing}; {error.cure}"))
    except (BuildError, EngineError, ProgramError, ScenarioError, LabEndedError) as error:
        message = printable(f"{position}: {error}" if position else str(error))
        # Without "from None" pytest would also print the original exception.
        raise pytest.fail.Exception(message, pytrace=False) from None


def record(
    item: pytest.Item, scenario: Scenario, engine: EngineChoice, verdict: Judged, built: Built | None = None
) -> None:
    """Add properties such as engine and kernel to an item's report, for JUnit XML and pytest-html.

    ``built`` says what runs in the lab, if the item needed one.
    """
    properties = {"engine": engine.name, "scenario": scenario.name, "seed": seed(item.config)}
    if built is not None:
        properties |= {"iptables": built.variant, "kernel": built.kernel}
    if engine.kernel != HOST:
        properties["kernel_name"] = engine.kernel
    if engine.binary is not None:
        properties[BINARY] = str(engine.binary)
        properties["binary_sha256"] = engine.binary.digest
    known = {name for name, _ in item.user_properties}
    item.user_properties += [(name, value) for name, value in properties.items() if name not in known]
    item.user_properties.append(("verdict", verdict.overall.value))
    if verdict.bundle:
        item.user_properties.append(("bundle", verdict.bundle))


def leave_pcap(item: pytest.Item, lab_open: OpenLab, verdict: Judged, number: int = 0) -> None:
    """Save the frames of an item's probe as a pcapng file, and add its path to the report."""
    name = f"{item.nodeid} {number}" if number else item.nodeid
    try:
        file = pcap_file(pcap_directory(item.config), name, pcapng(lab_open.capture(verdict).frames))
    except OSError as error:
        warn(item, f"cannot save the frames of {name!r}: {error}")
    else:
        item.user_properties.append(("pcap", str(file)))


def warn(item: pytest.Item, message: str) -> None:
    """Add a message to pytest's warnings summary."""
    item.warn(pytest.PytestWarning(message))
