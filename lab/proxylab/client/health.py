"""Queries the health-check node port of a Service, for a diagnosis.

This module chooses the nodes and the senders. The caller sends, and ``proxylab.diagnosis.checked`` judges.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from proxylab.addresses import Family, IPAddress
from proxylab.diagnosis.checked import Checked, due_on
from proxylab.diagnosis.path_tests import Dialler, Terms, askers, nodes_at
from proxylab.diagnosis.subject import Subject
from proxylab.errors import ScenarioError
from proxylab.evidence.evidence import HttpReport
from proxylab.scenario.model import Frontend, HttpExpect, ServiceTarget
from proxylab.verdict.model import Judgement, ProbeVerdict

__all__ = ["Ask", "asked_for_health"]

Ask = Callable[[str, str, ServiceTarget, HttpExpect], ProbeVerdict]
"""From a probe's name, its sender, the target and the expected HTTP answer, to the verdict on it."""


def asked_for_health(
    subject: Subject, terms: Terms, all_diallers: Sequence[Dialler], nodes: Sequence[str], ask: Ask
) -> Iterator[Checked]:
    """The answer of each of ``nodes`` in each family of the Service; empty for a Service without such a port."""
    if not subject.service.health_check_node_port:
        return
    for node, address in nodes_at(subject, terms, nodes):
        for sender in askers(all_diallers, node, address):
            with suppress(ScenarioError):
                yield _answer(subject, sender, node, address, ask)
                break


def _answer(subject: Subject, sender: str, node: str, address: IPAddress, ask: Ask) -> Checked:
    due = due_on(subject, node, Family.of(address))
    wanted = HttpExpect(status=200 if due else 503, local_endpoints=len(due))
    target = ServiceTarget(
        service=subject.service.name,
        namespace=subject.service.namespace,
        via=Frontend.HEALTH_CHECK_NODE_PORT,
        node=node,
        address=address,
    )
    verdict = ask(f"{sender} asks {address} on {node}", sender, target, wanted)
    (told,) = verdict.evidence.http or (HttpReport(0, 0, error="timeout"),)
    return Checked(
        node=node,
        address=address,
        sender=sender,
        status=told.status,
        told=told.local_endpoints,
        error=told.error,
        proven=verdict.overall is not Judgement.INCONCLUSIVE,
    )
