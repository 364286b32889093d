"""Judges whether clients reach the lab's name server through its Service, by DNS queries: it answers no probes."""

from collections.abc import Sequence

from proxylab.diagnosis.model import Finding, Stage, breaks, holds
from proxylab.diagnosis.subject import Subject
from proxylab.evidence.evidence import Lookup
from proxylab.evidence.words import listed

__all__ = ["judge_name_server"]


def judge_name_server(subject: Subject, lookups: Sequence[tuple[str, Lookup]]) -> Finding:
    """Judge whether the name server answers queries to its Service.

    Args:
        subject: the Service kube-dns.
        lookups: the name of each pod, node or host that sent a query, and the result.
    """
    for netns_name, lookup in lookups:
        if lookup.error:
            frontend = subject.service.cluster_ips[0]
            cause = f"{netns_name} queried {frontend} by UDP, but no name server answered ({lookup.error})."
            target = f"{subject.service.namespace}/{subject.service.name}:dns"
            return breaks(Stage.DNAT, (f"{netns_name} got no answer",), cause, f"trace {netns_name} {target}")
    served = dict.fromkeys(lookup.served_by for _, lookup in lookups if lookup.served_by)
    senders = listed([netns_name for netns_name, _ in lookups])
    return holds(Stage.DNAT, f"{listed(list(served))} answered {senders}")
