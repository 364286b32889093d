"""The setting of Kubernetes behind a cause, in Kubernetes' words, and how to change it.

A rule only carries out what the objects say. These sentences follow the one that names the rule. Each rests on the
Service as the API server has it (``DialledService``), and on what the packets did: a setting that did not decide about
them is not named.
"""

import re
from collections.abc import Callable
from typing import Final

from proxylab.cluster.configuration import DetectLocalMode
from proxylab.cluster.objects import Endpoint, TrafficPolicy
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.evidence.words import listed
from proxylab.plan.dialled_service import DialledService
from proxylab.scenario.words import Frontend, Outcome, Spread
from proxylab.verdict.causes.failure import Failure
from proxylab.verdict.causes.foreign_rules import source_rewritten
from proxylab.verdict.causes.no_endpoint import why_none_listens, why_none_local, why_none_usable, why_unready
from proxylab.verdict.causes.node_ports import why_not_served
from proxylab.verdict.causes.programs import forwards_what_it_saw
from proxylab.verdict.counted_rules import HAIRPINS, NFT_TABLE, CountedRule, is_from_itself, may_be_engines
from proxylab.verdict.flows import Fate

_OF_FIREWALL: Final = re.compile(r"(?:KUBE-(?:PROXY-FIREWALL|FW-|SOURCE-RANGES|LOAD-BALANCER)|firewall-)\S*")
_DETECTS_PODS: Final = {
    DetectLocalMode.CLUSTER_CIDR: "it must cover the networks of all pods",
    DetectLocalMode.NODE_CIDR: "the node's podCIDR must cover the networks of its pods",
    DetectLocalMode.BRIDGE_INTERFACE: "bridgeInterface must be the bridge of the node's pods",
    DetectLocalMode.INTERFACE_NAME_PREFIX: "interfaceNamePrefix must begin the device name of every pod of the node",
}
_ENDED: Final = frozenset({Fate.LOST, Fate.REJECTED})


def setting_behind(failure: Failure, dialled: DialledService) -> str:
    """The setting that made a failed expectation fail, as a sentence; empty where none is known to."""
    if failure.case.evidence.terminating:
        return ""
    return next(
        (sentence(failure, dialled) for about, sentence in _SETTINGS if failure.verdict.expectation in about), ""
    )


def _of_outcome(failure: Failure, dialled: DialledService) -> str:
    if failure.fate is Fate.DELIVERED:
        return _of_delivery(failure, dialled)
    if failure.flow.arrivals and failure.fate in (Fate.REFUSED, Fate.UNREACHABLE):
        arrival = failure.flow.arrivals[0]
        pod = dialled.pod_at(arrival.destination)
        return why_none_listens(dialled.service, dialled.port, pod, arrival.destination_port)
    return (_of_end(failure, dialled) if failure.fate in _ENDED else "") or (
        _of_address(failure, dialled) or why_not_served(failure, dialled)
    )


def _of_address(failure: Failure, dialled: DialledService) -> str:
    """An EndpointSlice that an author wrote names an address that no machine of the lab has."""
    targets = (rule.translates_to[0] for rule in failure.case.translations if rule.translates_to is not None)
    addresses = {address for each in dialled.endpoints for address in each.addresses}
    strange = next((each for each in targets if each in addresses and each not in failure.pods), None)
    if strange is None or dialled.service.selector:
        return ""
    return f"the EndpointSlice names {strange}, which nothing in this lab has; {_names_of(dialled)}."


def _names_of(dialled: DialledService) -> str:
    """Which address a slice may name instead."""
    has = next((f"{pod.name} has {pod.addresses[0]}" for pod in dialled.pods if pod.ports and pod.addresses), "")
    return f"it must name that of a pod{has and f', and {has}'}"


def _of_end(failure: Failure, dialled: DialledService) -> str:
    """Why the engine dropped or rejected the packet: no endpoint to use, or a client outside the ranges."""
    rules = [rule for target in ("DROP", "REJECT") for rule in failure.case.ending(target)]
    if not rules:
        return ""
    node, client, ranges = rules[0].count.node, failure.case.resolved.sender.address, dialled.service.source_ranges
    if rules[0].target == "DROP" and _OF_FIREWALL.match(rules[0].count.chain):
        if any(client in each for each in ranges):
            return ""
        allowed = listed([str(each) for each in ranges])
        add = f"with {client}/{client.max_prefixlen} among them, it may pass"
        return f"{client} is not in loadBalancerSourceRanges ({allowed}); {add}."
    if not dialled.usable:
        return why_none_usable(dialled)
    is_local = dialled.policy[1] is TrafficPolicy.LOCAL
    return why_none_local(dialled, node) if is_local and not dialled.usable_on(node) else ""


def _of_delivery(failure: Failure, dialled: DialledService) -> str:
    """Why a packet passed that the author expects a policy or range to stop."""
    if failure.case.expect.outcome not in (Outcome.DROPPED, Outcome.REJECTED) or not failure.flow.arrivals:
        return ""
    client, ranges = failure.case.resolved.sender.address, dialled.service.source_ranges
    allowed = listed([str(each) for each in ranges])
    if ranges and dialled.via is not Frontend.LOAD_BALANCER_IP:
        guarded = "loadBalancerSourceRanges are for load-balancer IPs alone"
        return f"{guarded}, and the probe dials the {dialled.via}."
    if ranges and any(client in each for each in ranges):
        return f"{client} is in loadBalancerSourceRanges ({allowed})."
    return _chosen_elsewhere(failure, dialled)


def _chosen_elsewhere(failure: Failure, dialled: DialledService) -> str:
    """Policy Cluster let a node send the packet to an endpoint of another node."""
    arrival = failure.flow.arrivals[0]
    rule, key = failure.translation(arrival.destination), dialled.policy[0]
    there = _endpoint_at(dialled, failure)
    if rule is None or there is None or dialled.policy[1] is not TrafficPolicy.CLUSTER:
        return ""
    node = rule.count.node
    if there.node_name in ("", node):
        return ""
    return f"{key} is Cluster, so {node} uses endpoints of every node; Local keeps to those on {node}."


def _endpoint_at(dialled: DialledService, failure: Failure) -> Endpoint | None:
    """The endpoint that the flow reached."""
    address = failure.flow.arrivals[0].destination
    return next((each for each in dialled.endpoints if each.addresses[0] == address), None)


def _of_source(failure: Failure, dialled: DialledService) -> str:
    """Why the engine masqueraded the packet, or did not."""
    flow, resolved = failure.flow, failure.case.resolved
    client = resolved.sender.address_of_flow(flow.number)
    if not flow.arrivals or flow.arrivals[0].destination == client:
        return ""  # an endpoint that reaches itself, which no setting changes
    if flow.arrivals[0].source == client:
        return "" if failure.rewriting else _why_kept(failure, dialled)
    if failure.case.masqueraded_again or source_rewritten(failure):
        return ""  # no setting marks a tunnel's packet, or is behind the rule of another program
    changing = [rule for rule in failure.rewriting if may_be_engines(rule.count, resolved)]
    # Under every setting a node masquerades what it sends itself, and what goes back to its sender.
    if not changing or HAIRPINS in changing[0].count.text or resolved.sender.namespace in resolved.nodes:
        return ""
    node = changing[0].count.node
    if dialled.is_internal:
        marking = [rule for rule in failure.marking if not is_from_itself(rule, client)]
        return _why_masqueraded_inside(failure, dialled, node, marking[0]) if marking else ""
    if dialled.policy[1] is TrafficPolicy.LOCAL:
        return ""
    says = f"the Service's externalTrafficPolicy is Cluster, so {node} masquerades"
    if failure.case.resolved.sender.address in {pod.address for pod in failure.case.resolved.receivers}:
        return f"{says}; Local keeps the address of a pod, too."
    return f"{says}; Local keeps the client's address, and uses only endpoints on the node that the packet enters."


def _why_kept(failure: Failure, dialled: DialledService) -> str:
    """Nothing masqueraded the packet."""
    node = next((rule.count.node for rule in failure.case.translations), "")
    if not node:
        return ""
    if not dialled.is_internal:
        if dialled.policy[1] is not TrafficPolicy.LOCAL:
            return ""
        return (
            f"the Service's externalTrafficPolicy is Local, so {node} keeps the client's address; Cluster masquerades."
        )
    cure = "masqueradeAll: true masquerades every client of a cluster IP"
    if _detects_by_cidr(dialled) and dialled.proxy.cluster_cidrs == ():
        return f"clusterCIDR is empty, so {node} cannot tell pods from other clients, and keeps all addresses; {cure}."
    if failure.case.resolved.sender.address in {pod.address for pod in failure.case.resolved.receivers}:
        return f"{node} keeps the addresses of the cluster's pods at a cluster IP; {cure}."
    return ""


def _why_masqueraded_inside(failure: Failure, dialled: DialledService, node: str, marking: CountedRule) -> str:
    """A rule marked a packet to a cluster IP."""
    proxy, resolved = dialled.proxy, failure.case.resolved
    by_nft = marking.count.table == NFT_TABLE
    if proxy.nftables.masquerade_all if by_nft else proxy.masquerade_all:
        return (
            f"masqueradeAll is true, so {node} masquerades every client of a cluster IP; false keeps pods' addresses."
        )
    if not any(each.negated for each in marking.read.matches):
        return ""
    is_pod = any(resolved.sender.namespace == each.namespace for each in resolved.receivers)
    key, cure = f"detectLocalMode is {proxy.detect_local_mode}", _DETECTS_PODS[proxy.detect_local_mode]
    if _detects_by_cidr(dialled):
        networks = marking.excepted_sources
        key = f"clusterCIDR is {listed(networks)}" if networks else "clusterCIDR leaves the client out"
    if is_pod:
        return f"{key}, so {node} takes the pod for a client from outside; {cure}."
    outside = "externalTrafficPolicy: Local at a node port or load-balancer IP keeps the address of a client outside"
    return f"{key}, so {node} masquerades clients from elsewhere at a cluster IP; {outside}."


def _detects_by_cidr(dialled: DialledService) -> bool:
    return dialled.proxy.detect_local_mode is DetectLocalMode.CLUSTER_CIDR


def _of_backends(failure: Failure, dialled: DialledService) -> str:
    """Why a node chose an endpoint that the author does not expect, or never one that the author does."""
    names = failure.case.expect.backend_names
    if any(each.netns_name not in names for each in failure.flow.arrivals):
        return _why_chosen(failure, dialled)
    never = [name for name in names if not failure.case.arrivals_by_pod[name]]
    return next(filter(None, (_why_never(failure, dialled, name) for name in never)), "")


def _why_chosen(failure: Failure, dialled: DialledService) -> str:
    """Why the endpoint of this flow is one that the node may choose."""
    there = _endpoint_at(dialled, failure)
    if there is None:
        return ""
    name, pod = dialled.named(there), dialled.pod_at(there.addresses[0])
    if pod is not None and not pod.ready and dialled.service.publish_not_ready_addresses:
        return f"{name} is not ready, but publishNotReadyAddresses is true."
    if not there.ready and there.terminating:
        return f"{name} is terminating and still serves, and no endpoint is ready."
    expected = [each for each in dialled.endpoints if dialled.named(each) in failure.case.expect.backend_names]
    rule = failure.translation(there.addresses[0])
    local = expected and rule is not None and all(each.node_name == rule.count.node for each in expected)
    return _chosen_elsewhere(failure, dialled) if local else ""


def _why_never(failure: Failure, dialled: DialledService, name: str) -> str:
    """Why a pod is no endpoint, or none that the node may choose."""
    pod = next((each for each in dialled.pods if each.name == name), None)
    found = next((each for each in dialled.endpoints if dialled.named(each) == name), None)
    if found is None:
        if pod is None or not dialled.service.selector or pod in dialled.selected:
            return ""
        labels = ",".join(f"{label}={value}" for label, value in pod.labels.items()) or "no label"
        return f"the selector {dialled.selector} does not match {name}, which has {labels}."
    if found not in dialled.usable:
        return why_unready(dialled, [found])
    node = next((rule.count.node for rule in failure.case.translations), "")
    if not node or found.node_name == node:
        return ""
    if dialled.policy[1] is TrafficPolicy.LOCAL:
        keeps = f"{dialled.policy[0]} is Local, so {node} uses its own endpoints alone"
        return f"{keeps}, and {name} is on {found.node_name}; Cluster uses those of every node."
    if found.for_zones or found.for_nodes:
        prefers = f"trafficDistribution is {dialled.service.traffic_distribution}"
        return f"{prefers}, so {node} uses endpoints closer than {name}."
    return ""


def _of_reply(failure: Failure, dialled: DialledService) -> str:
    """Mode ipvs uses endpoints of other nodes where policy Local leaves a node without any, and masquerades nothing."""
    node = next((rule.count.node for rule in failure.case.translations if rule.count.table == VIRTUAL_SERVERS), "")
    key, policy = dialled.policy
    if not node or policy is not TrafficPolicy.LOCAL or dialled.is_internal or dialled.usable_on(node):
        return ""
    uses = "mode ipvs then uses those of other nodes and keeps the client's address"
    return f"no endpoint on {node}, and {key} is Local: {uses}; Cluster masquerades, so that replies pass {node}."


def _of_spread(failure: Failure, dialled: DialledService) -> str:
    """Session affinity holds on each node alone."""
    nodes = list(dict.fromkeys(rule.count.node for rule in failure.case.translations))
    if failure.case.expect.spread is not Spread.STICKY or dialled.service.affinity_timeout is None:
        return ""
    if len(nodes) < 2:
        return ""
    remembers = f"each node remembers its clients for itself, and {listed(nodes)} translated these flows"
    return f"sessionAffinity is ClientIP, but {remembers}; the balancer in front must keep a client at one node."


_SETTINGS: Final[tuple[tuple[frozenset[str], Callable[[Failure, DialledService], str]], ...]] = (
    (frozenset({"outcome", "at"}), _of_outcome),
    (frozenset({"source"}), _of_source),
    (
        frozenset({"http"}),
        lambda failure, dialled: _of_source(failure, dialled) if forwards_what_it_saw(failure) else "",
    ),
    (frozenset({"backends"}), _of_backends),
    (frozenset({"spread"}), _of_spread),
    (frozenset({"reply"}), _of_reply),
)
