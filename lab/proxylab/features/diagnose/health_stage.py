"""The last stage: what health-check node ports answer to load balancers.

Owns ``Checked``, one node's answer, and ``judge_health``. A load balancer for a Service of policy Local sends only to
nodes that answer 200. A node should answer 200 while it has a ready endpoint; a terminating one does not count, though
it may still get traffic.
"""

from collections.abc import Sequence

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.features.diagnose.model import Finding, Stage, breaks, holds, nothing, unclear
from proxylab.features.diagnose.subject import DiagnosedService

_OK, _UNAVAILABLE = 200, 503


class Checked(Struct, frozen=True, kw_only=True):
    """A node's answer on the health-check port.

    Attributes:
        status: of HTTP; 0 without an answer.
        reported: the number of endpoints that the answer reports.
        error: the name of the socket's errno, or ``timeout``; empty for an answer.
        proven: whether the evidence proves that the answer is missing.
    """

    node: str
    address: IPAddress
    sender: str
    status: int = 0
    reported: int | None = None
    error: str = ""
    proven: bool = True


def expected_on(subject: DiagnosedService, node: str, family: Family) -> tuple[str, ...]:
    """The ready endpoints on a node, each once, by the names of their pods or by address."""
    found = {
        each.addresses[0]: each.target
        for each in (one.endpoint for one in subject.endpoints())
        if each.ready and each.node_name == node and Family.of(each.addresses[0]) is family
    }
    return tuple(target or str(address) for address, target in found.items())


def judge_health(subject: DiagnosedService, answers: Sequence[Checked]) -> Finding:
    """Judge whether every node answers 200 with endpoints, 503 without, and reports their number."""
    if not subject.service.health_check_node_port:
        return nothing(Stage.HEALTH, "the Service has no health-check port")
    if not answers:
        return nothing(Stage.HEALTH, "no pod, node or host of this lab can dial a health-check port")
    for answer in answers:
        finding = _fault(subject, answer)
        if finding is not None:
            return finding
    serving = list(dict.fromkeys(each.node for each in answers if each.status == _OK))
    others = list(dict.fromkeys(each.node for each in answers if each.status != _OK))
    seen = [f"{listed(serving)} {'answers' if len(serving) == 1 else 'answer'} 200"] if serving else []
    seen += [f"{listed(others)} {'answers' if len(others) == 1 else 'answer'} 503, without endpoints"] if others else []
    return holds(Stage.HEALTH, *seen)


def _fault(subject: DiagnosedService, answer: Checked) -> Finding | None:
    """The finding that an answer is wrong; ``None`` where it is right."""
    expected = expected_on(subject, answer.node, Family.of(answer.address))
    port = subject.service.health_check_node_port
    where = f"{answer.node}'s health-check port {endpoint(answer.address, port)}"
    status = _OK if expected else _UNAVAILABLE
    here = (
        f"{listed(expected)} {'is' if len(expected) == 1 else 'are'} ready there"
        if expected
        else "no endpoint is ready there"
    )
    if answer.error:
        seen = f"{where} does not answer"
        why = "nothing came back" if answer.error == "timeout" else f"the socket reports {answer.error}"
        follows = f"so no balancer sends to {answer.node}, though {here}" if expected else f"and {here}"
        sentence = f"{where} does not answer {answer.sender}: {why}; {follows}."
    elif answer.status != status:
        seen = f"{where} answers {answer.status}, expected {status}"
        follows = f"balancers send nothing to {answer.node}" if expected else f"balancers send what {answer.node} drops"
        sentence = f"{where} answers {answer.status}, though {here}: {follows}."
    elif answer.reported != len(expected):
        number = "no number" if answer.reported is None else amount(answer.reported, "endpoint")
        seen = f"{where} reports {number}"
        sentence = f"{where} reports {number}, but {here}: balancers that weigh nodes by it send the wrong share."
    else:
        return None
    make = breaks if answer.proven else unclear
    trace = f"trace {answer.sender} {endpoint(answer.address, port)}"
    look = (trace, f"get endpoints {subject.service.name} -o yaml", f"logs {answer.node}")
    return make(Stage.HEALTH, (seen,), sentence, *look)
