"""Asks the questions of an audit in a lab, and judges the answers."""

import time
from collections.abc import Callable

from msgspec.structs import replace

from proxylab.client.open_lab import OpenLab
from proxylab.cluster.objects import EndpointSlice
from proxylab.engines.engine_names import mode_of
from proxylab.features.audit.findings import Audit, AuditAnswer
from proxylab.features.audit.questions import Asker
from proxylab.features.audit.senders import senders_of
from proxylab.oracle.promised import with_promises
from proxylab.plan.host_ports import host_ports
from proxylab.verdict.model import UNRESOLVED, ProbeVerdict


def audit(lab: OpenLab, command: str, at: Callable[[int, int], None]) -> Audit:
    """Ask everything, in the lab as it is now.

    ``command`` asks it again; ``at`` hears how many questions are answered, and of how many.

    The first question with another answer than the promised one is traced, for its explanation.

    Raises:
        ScenarioError: a question cannot be sent from where the lab has its senders.
        LabError: the lab is gone.
    """
    assembly, plan, subject = lab.assembly, lab.current_plan(), lab.scenario.file
    cluster, network = assembly.timeline[lab.made], lab.scenario.network
    senders = senders_of(lab.scenario, plan)
    asker = Asker(
        services=cluster.services,
        slices=[each for each in cluster.objects if isinstance(each, EndpointSlice)],
        plan=plan,
        senders=senders,
        families=network.families,
        service_networks=network.service_cidrs,
        host_ports=host_ports(plan, cluster.pods.values(), cluster.nodes.values()),
        file=subject,
    )
    questions = list(asker.questions())
    bare = assembly.with_probes([each.probe for each in questions], lab.made).scenario
    filled = with_promises(bare, mode_of(lab.engine.name), lab.engine.version)
    promised = {each.name: each for each in filled.all_probes}
    probes = [promised[each.probe.name] for each in questions]
    lab.add(*probes)
    began, judged = time.monotonic(), dict[int, ProbeVerdict]()
    for number, verdict in lab.judged_together(probes):
        at(len(judged), len(questions))
        judged[number] = replace(verdict, rerun_command=command)
    answers = [AuditAnswer(question, judged[number]) for number, question in enumerate(questions)]
    first = next((number for number, each in enumerate(answers) if each.judgement in UNRESOLVED), None)
    if first is not None:
        again = lab.probe(probes[first])
        if again.overall is answers[first].judgement:  # a difference that does not come again stays, without a trace
            answers[first] = AuditAnswer(questions[first], replace(again, rerun_command=command))
    return Audit(
        subject=subject,
        engine=lab.engine.name,
        answers=tuple(answers),
        undialled=asker.undialled,
        missing=senders.missing,
        seconds=time.monotonic() - began,
    )
