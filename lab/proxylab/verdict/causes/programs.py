"""Causes at programs that end connections: a proxy's process, an Ingress controller, a server of health checks.

The causes name the source that a pod saw, the program that chose the pod, why a connection was closed or stayed on its
node, what a health check knows, and the address that a controller passed on.
"""

from proxylab.evidence.evidence import HttpReport, Observation, Packet
from proxylab.evidence.words import amount, endpoint, listed, times
from proxylab.verdict.causes.failure import Failure
from proxylab.verdict.foreign import rewrote, rule_words


def sent_by_program(failure: Failure) -> str:
    """The pod saw the node's own address, because a process of the proxy opened the connection to it."""
    sent = failure.flow.relayed
    if sent is None:
        return ""
    opened = f"opened another one, from {endpoint(sent.source, sent.source_port)}"
    return f"the proxy's process on {sent.netns_name} ended the connection and {opened}: no pod sees the client."


def chosen_by_program(failure: Failure) -> str:
    """A process of the proxy, and no rule, chose the pod."""
    sent = failure.flow.relayed
    if sent is None or not failure.flow.reached:
        return ""
    return f"the proxy's process on {sent.netns_name} sent the flow to {listed(failure.flow.reached)}; no rule chooses."


def closed_by_program(failure: Failure) -> str:
    """A process of the proxy accepted the connection and found no endpoint for it."""
    flow, resolved = failure.flow, failure.case.resolved
    got = flow.taken
    if got is None:
        return ""
    pods = failure.pods
    tried = [each for each in flow.tries if each.packet is Packet.REQUEST and each.destination in pods]
    named = {each.source_port: pods[each.destination].name for each in tried}
    accepted = f"the proxy's process on {got.netns_name} accepted the connection"
    if not named and (instead := _led_elsewhere(failure, got)):
        return f"{instead}; it was closed."
    if not named and not resolved.endpoints:
        return f"{accepted}, had no endpoint for it, and closed it."
    if not named and len(failure.case.flows) == 1:
        return f"{accepted} and closed it, and no tap saw it try an endpoint."
    if not named:  # of several flows nothing shows which of them an attempt without a request was for
        return f"{accepted}, reached no endpoint for it, and closed it."
    names = list(dict.fromkeys(named.values()))
    return f"{accepted}, tried {listed(names)} {times(len(named))} in vain, and closed it."


def kept_on_node(failure: Failure) -> str:
    """A node accepted the connection, and the proxy's process there has nothing more to do with it.

    A process of mode userspace holds the node ports, and reads what comes to its own port alone.
    """
    got = failure.flow.taken
    if got is None or failure.flow.tries:
        return ""
    if instead := _led_elsewhere(failure, got):
        return f"{instead}."
    took = f"the proxy's process on {got.netns_name} got the connection"
    return f"{took}, sent nothing to a pod, and has nothing more to do."


def _led_elsewhere(failure: Failure, got: Observation) -> str:
    """Where a node accepted the connection instead of the proxy's process, or may have; empty if it did not."""
    case, node = failure.case, got.netns_name
    rule = rewrote(case.resolved, case.evidence, node)
    there = f"{node} accepted the connection at {endpoint(got.destination, got.destination_port)}"
    if case.taken_by_others([failure.flow]):
        by = "" if rule is None else f", and has {rule_words(rule)}"
        which = "no rule" if rule is None else "no rule of the engine"
        return f"{which} led the packet to the proxy's process: {there}{by}"
    return "" if rule is None else f"{there}, and has {rule_words(rule)}, which may have led it to another program"


def health_port_knows(failure: Failure) -> str:
    """A health-check node port answers by the number of local endpoints that the proxy of its node knows."""
    report = _report(failure)
    if report is None or report.error or report.local_endpoints is None:
        return ""
    known = amount(report.local_endpoints, "local endpoint")
    return f"the proxy that serves {failure.dialled} knows of {known}, so it answers {report.status}."


def address_not_forwarded(failure: Failure) -> str:
    """The X-Forwarded-For that a pod got is missing, or is the address that the controller saw."""
    report, expect = _report(failure), failure.case.expect.http
    if report is None or report.error or expect is None or expect.forwarded_for is None or not failure.flow.arrivals:
        return ""
    controller = failure.flow.arrivals[0].netns_name
    if not report.forwarded_for:
        writes = "an Ingress controller that ends HTTP writes it, and no Service changes a header"
        return f"{controller} sent {report.backend} the request without X-Forwarded-For: {writes}."
    if not forwards_what_it_saw(failure):
        return ""
    saw = failure.flow.arrivals[0].source
    return f"{controller} saw the connection come from {saw}, and wrote that into X-Forwarded-For."


def forwards_what_it_saw(failure: Failure) -> bool:
    """Whether the pod got, as X-Forwarded-For, the source that the controller saw, and the author expects another."""
    report, expect = _report(failure), failure.case.expect.http
    if report is None or expect is None or expect.forwarded_for is None or not failure.flow.arrivals:
        return False
    named = failure.case.resolved.addresses.get(expect.forwarded_for, ())
    saw = failure.flow.arrivals[0].source
    return report.forwarded_for == str(saw) and saw not in named and expect.forwarded_for != str(saw)


def _report(failure: Failure) -> HttpReport | None:
    number = failure.verdict.example or 0
    return next((each for each in failure.case.evidence.http if each.flow == number), None)
