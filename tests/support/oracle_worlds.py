"""Asks the oracle about the probes of a scenario that a test writes as text; what they expect does not matter."""

from collections.abc import Mapping

from proxylab.cluster.configuration import Mode
from proxylab.oracle.answers import FlowAnswer
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import moment_of, question_of
from proxylab.oracle.moment import Moment
from proxylab.oracle.setting import ProxySetting
from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.versions import Version

__all__ = ["NEWEST", "PROXY", "answers", "cluster_of", "moment_and_assembly", "sources"]

NEWEST: Version = (1, 37)
PROXY = ProxySetting(mode=Mode.IPTABLES, version=NEWEST)

_HEAD = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: world}
spec:
"""


def cluster_of(spec: str, *documents: str, probes: Mapping[str, str] | None = None) -> str:
    """A scenario with that spec, further documents, and probes by name: each a sender and a target in flow style."""
    lines = [f"  - {{name: {name}, {probe}, expect: {{outcome: dropped}}}}" for name, probe in (probes or {}).items()]
    body = "".join(f"  {line}\n" for line in spec.strip().splitlines())
    sent = "  probes:\n" + "\n".join(lines) + "\n" if lines else "  probes: []\n"
    return _HEAD + body + sent + "".join(f"---\n{document.strip()}\n" for document in documents)


def moment_and_assembly(text: str, mode: str = "iptables", version: Version = NEWEST) -> tuple[Moment, Assembly]:
    """The moment when the lab of the scenario begins."""
    (case,) = cases(parse_scenario(text, "world.lab.yaml"), mode, version)
    assembly = assemble(case)
    return moment_of(assembly, 0, Mode(mode), version), assembly


def answers(text: str, mode: str = "iptables", version: Version = NEWEST) -> dict[str, FlowAnswer]:
    """The oracle's answer to each probe by its name."""
    moment, assembly = moment_and_assembly(text, mode, version)
    oracle = Oracle(moment)
    return {probe.name: oracle.answer(question_of(assembly.resolved(probe))) for probe in assembly.scenario.probes}


def sources(answer: FlowAnswer) -> dict[str, str]:
    """The source that each endpoint sees; each sees one."""
    return {each.name: str(each.sources[0].address) for each in answer.reached if len(each.sources) == 1}
