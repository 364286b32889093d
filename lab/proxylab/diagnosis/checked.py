"""The last station: what health-check node ports tell load balancers.

Owns: ``Checked``, one node's answer, and ``judge_health``.
Must not: ask.

A balancer before a Service of policy Local sends to the nodes that say 200, and to no others. A node is due to say so
as long as a ready endpoint stands on it; one that terminates does not count, though it may still be given traffic.
"""

from collections.abc import Sequence

from proxylab.addresses import Family, IPAddress
from proxylab.diagnosis.model import Finding, Stage, breaks, holds, nothing, unclear
from proxylab.diagnosis.subject import Subject
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.frozen import dataclass

__all__ = ["Checked", "due_on", "judge_health"]

_OK, _UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a node answered on the health-check port.

    Attributes:
        node: which.
        address: of it that was asked.
        sender: who asked.
        status: by HTTP; 0 without an answer.
        told: how many endpoints it says are on it.
        error: the errno's name where a socket told one, or ``timeout``; empty for an answer.
        proven: whether what is missing is proven to be.
    """

    node: str
    address: IPAddress
    sender: str
    status: int = 0
    told: int | None = None
    error: str = ""
    proven: bool = True


def due_on(subject: Subject, node: str, family: Family) -> tuple[str, ...]:
    """The ready endpoints on a node, by the names of their pods or by address; each once, whatever ports it has."""
    found = {
        each.addresses[0]: each.target
        for each, _, _ in subject.endpoints()
        if each.ready and each.node_name == node and Family.of(each.addresses[0]) is family
    }
    return tuple(target or str(address) for address, target in found.items())


def judge_health(subject: Subject, answers: Sequence[Checked]) -> Finding:
    """Every node says 200 if endpoints are on it, 503 if none are, and how many."""
    if not subject.service.health_check_node_port:
        return nothing(Stage.HEALTH, "no balancer asks which node serves it: it has no health-check port")
    if not answers:
        return nothing(Stage.HEALTH, "nobody in this lab can ask a node for it")
    for answer in answers:
        finding = _fault(subject, answer)
        if finding is not None:
            return finding
    serving = list(dict.fromkeys(each.node for each in answers if each.status == _OK))
    others = list(dict.fromkeys(each.node for each in answers if each.status != _OK))
    seen = [f"{listed(serving)} {'says' if len(serving) == 1 else 'say'} 200"] if serving else []
    seen += [f"{listed(others)} {'says' if len(others) == 1 else 'say'} 503, having no endpoint"] if others else []
    return holds(Stage.HEALTH, *seen)


def _fault(subject: Subject, answer: Checked) -> Finding | None:
    """What is wrong with an answer."""
    due = due_on(subject, answer.node, Family.of(answer.address))
    port = subject.service.health_check_node_port
    where = f"{answer.node}'s health-check port {endpoint(answer.address, port)}"
    status = _OK if due else _UNAVAILABLE
    here = f"{listed(due)} {'is' if len(due) == 1 else 'are'} ready there" if due else "no endpoint is ready there"
    if answer.error:
        told = f"{where} does not answer"
        why = "nothing came back" if answer.error == "timeout" else f"the socket says {answer.error}"
        follows = f"so no balancer sends to {answer.node}, though {here}" if due else f"and {here}"
        sentence = f"{where} does not answer {answer.sender}: {why}; {follows}."
    elif answer.status != status:
        told = f"{where} says {answer.status}, and must say {status}"
        follows = f"balancers send nothing to {answer.node}" if due else f"balancers send what {answer.node} drops"
        sentence = f"{where} says {answer.status}, though {here}: {follows}."
    elif answer.told != len(due):
        number = "no number" if answer.told is None else amount(answer.told, "endpoint")
        told = f"{where} tells of {number}"
        sentence = f"{where} tells of {number}, and {here}: balancers that weigh nodes by it send the wrong share."
    else:
        return None
    make = breaks if answer.proven else unclear
    asked = f"trace {answer.sender} {endpoint(answer.address, port)}"
    look = (asked, f"get endpoints {subject.service.name} -o yaml", f"logs {answer.node}")
    return make(Stage.HEALTH, (told,), sentence, *look)
