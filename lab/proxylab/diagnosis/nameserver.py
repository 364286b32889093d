"""Whether the lab's own name server is reached through its Service: by questions, since it answers no probes.

Owns: ``judge_name_server``.
Must not: ask.
"""

from collections.abc import Sequence

from proxylab.diagnosis.model import Finding, Stage, breaks, holds
from proxylab.diagnosis.subject import Subject
from proxylab.evidence.evidence import Lookup
from proxylab.evidence.words import listed

__all__ = ["judge_name_server"]


def judge_name_server(subject: Subject, asked: Sequence[tuple[str, Lookup]]) -> Finding:
    """The name server answers whoever asks by way of the Service.

    Args:
        subject: the Service kube-dns.
        asked: for each place that has asked, what became of that.
    """
    for netns_name, lookup in asked:
        if lookup.error:
            frontend = subject.service.cluster_ips[0]
            cause = (
                f"{netns_name} asked {frontend} by UDP, and the name server behind it did not answer ({lookup.error})."
            )
            target = f"{subject.service.namespace}/{subject.service.name}:dns"
            return breaks(Stage.DNAT, (f"{netns_name} got no answer",), cause, f"trace {netns_name} {target}")
    served = dict.fromkeys(lookup.served_by for _, lookup in asked if lookup.served_by)
    return holds(
        Stage.DNAT, f"{listed([netns_name for netns_name, _ in asked])} asked, and {listed(list(served))} answered"
    )
