"""Causes at a proxy's process that ends connections: whose source a pod saw, who chose it, why one closed or stayed."""

from proxylab.evidence.evidence import Packet
from proxylab.evidence.words import endpoint, listed, times
from proxylab.verdict.causes.failure import Failure

__all__ = ["chosen_by_program", "closed_by_program", "kept_on_node", "sent_by_program"]


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
    flow = failure.flow
    got = next((each for each in flow.relays if each.packet is Packet.REQUEST), None)
    if got is None:
        return ""
    pods = failure.pods
    tried = [each for each in flow.tries if each.packet is Packet.REQUEST and each.destination in pods]
    named = {each.source_port: pods[each.destination].name for each in tried}
    accepted = f"the proxy's process on {got.netns_name} accepted the connection"
    if not named:
        # Of several flows nothing shows which of them an attempt without a request was for.
        none = "had no endpoint for it" if len(failure.case.flows) == 1 else "reached no endpoint for it"
        return f"{accepted}, {none}, and closed it."
    names = list(dict.fromkeys(named.values()))
    return f"{accepted}, tried {listed(names)} {times(len(named))} in vain, and closed it."


def kept_on_node(failure: Failure) -> str:
    """A node accepted the connection, and the proxy's process there has nothing more to do with it.

    A process of mode userspace holds the node ports, and reads what comes to its own port alone.
    """
    flow, evidence = failure.flow, failure.case.evidence
    got = next((each for each in flow.relays if each.packet is Packet.REQUEST), None)
    if got is None or flow.tries or got.netns_name not in evidence.terminating:
        return ""
    node = got.netns_name
    if not failure.case.leading_to_program and node in evidence.counted:
        there = endpoint(got.destination, got.destination_port)
        return f"no rule led the packet to the proxy's process: {node} accepted the connection at {there}."
    return f"the proxy's process on {node} got the connection, sent nothing to a pod, and has nothing more to do."
