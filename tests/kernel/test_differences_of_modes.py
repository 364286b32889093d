"""The page of the differences between modes is made from a run. ``LAB_DOCS=write`` writes it again."""

import os
from collections.abc import Iterator

from guests import OWN
from msgspec.structs import replace
from sandboxed import ROOT

from proxylab.client.session import Session
from proxylab.engines.engine_names import mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.matrix import Matrix
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Manner
from proxylab.verdict.case import open_case
from proxylab.verdict.causes.layout import holder
from proxylab.verdict.flows.flows import Fate
from proxylab.verdict.model import ProbeVerdict

ENGINES = ("embedded/iptables", "embedded/nftables", "embedded/ipvs", "embedded/userspace")
GUESTS = {"embedded/ipvs": "uml"}  # few machines have IPVS
PAGE = ROOT / "docs" / "reference" / "modes.md"
FILES = ("every-pod-sees-the-node", "accepted-then-closed", "another-endpoint-is-tried", "proxy-stops")

# The question of each row, and the words that begin the name of its probe.
ROWS = {
    "a pod asks a pod on another node": "ClusterIP to another node",
    "a pod asks a pod on its own node": "ClusterIP to the same node",
    "the same over UDP": "ClusterIP by UDP",
    "a pod asks itself": "ClusterIP from a pod to itself",
    "a node asks a pod on another node": "ClusterIP from the node itself",
    "an outside host asks a node port": "NodePort from outside",
    "a Service has no endpoint": "ClusterIP without endpoints",
    "a node port has no endpoint": "NodePort without endpoints",
    "the only endpoint listens on no port": "ClusterIP of a closed port",
    "one of two endpoints listens on no port": "ClusterIP reaches the listening pod",
    "the proxy has stopped": "the proxy of the client's node stops",
}

TEXT = """\
# What the modes do otherwise

The same probes in each mode, as the taps of a run saw them: what became of the flows, and what the endpoint took for
the client. The scenarios are in `scenarios/userspace`, and a test makes this page from a run of them.

{table}

*accepted, then closed*: the proxy's process takes the connection before it looks for an endpoint. A client cannot tell
such a Service from one whose program closes every connection.

Mode ipvs runs on a kernel with IPVS, here in a guest. [Leave mode ipvs](../how-to/leave-mode-ipvs.md) says where it
differs from mode nftables.
"""


def in_every_mode(scenario: Scenario, mode: str) -> Scenario:
    """The case of that mode, also of a scenario that is about another one."""
    return cases(replace(scenario, matrix=Matrix()), mode)[0]


def seen(probe: Probe, verdict: ProbeVerdict) -> str:
    case = open_case(probe, verdict.resolved, verdict.evidence)
    became = sorted({str(fate) for fate in case.fates}, key=list(map(str, Fate)).index)
    sources = {arrival.source for flow in case.arrived for arrival in flow.arrivals}
    assert verdict.plan is not None
    sender = case.resolved.sender
    named = {"the client" if each == sender.address else holder(verdict.plan, each) for each in sources}
    return " or ".join(became) + (
        f"; sees {', '.join(sorted(named))}" if named and Fate.DELIVERED in case.fates else ""
    )


def rows_of(engine: str) -> Iterator[tuple[str, str]]:
    with Session(EngineChoice(engine, kernel=GUESTS.get(engine, "host"))) as session:
        for file in FILES:
            path = ROOT / "scenarios" / "userspace" / f"{file}.lab.yaml"
            scenario = in_every_mode(load_scenario(path), mode_of(engine))
            lab = session.open(scenario)
            for probe in scenario.all_probes:
                question = next((row for row, words in ROWS.items() if probe.name.startswith(words)), "")
                if question:
                    sent = replace(probe, send=replace(probe.send, manner=Manner.CONNECT))
                    yield question, seen(sent, lab.judged(probe))


@OWN
def test_the_page_is_of_this_code() -> None:
    columns = {mode_of(engine): dict(rows_of(engine)) for engine in ENGINES}
    lines = [f"| where | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    lines += [f"| {row} | {' | '.join(column[row] for column in columns.values())} |" for row in ROWS]
    made = TEXT.format(table="\n".join(lines))
    if os.environ.get("LAB_DOCS") == "write":
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "LAB_DOCS=write ./dev pytest tests/kernel/test_differences_of_modes.py"
