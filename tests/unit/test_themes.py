"""What a reviewer looks for stands somewhere in ``scenarios/``: every theme, and every bug that it is an exhibit of.

Each theme is shown over IPv4, over IPv6 and over both in one dual-stack cluster, or it is said why it cannot be.
Numbers are issues and pull requests of kubernetes/kubernetes.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lab.ip import Family
from lab.scenario.cases import cases
from lab.scenario.load import load_scenario
from lab.scenario.model import AddressTarget, Outcome, Probe, Scenario, Stream

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = sorted(SCENARIOS.rglob("*.lab.yaml"))

THEMES = {
    "cluster IP from a pod, which keeps its address": "clusterip/from-a-pod"
    "::ClusterIP from a pod preserves the client IP",
    "cluster IP from a node, which is masqueraded": "senders/from-a-node"
    "::ClusterIP from a node reaches a pod of another node",
    "cluster IP from outside": "clusterip/from-a-pod"
    "::ClusterIP from outside is masqueraded by the entry node towards another node",
    "several ports": "clusterip/several-ports",
    "several protocols on one port": "clusterip/one-port-over-tcp-and-udp",
    "spread over two endpoints": "spread/two-three-four-and-seven-endpoints"
    "::ClusterIP gives each of two endpoints half of the connections",
    "spread over three": "spread/two-three-four-and-seven-endpoints"
    "::ClusterIP gives each of three endpoints a third of the connections",
    "spread over four": "spread/two-three-four-and-seven-endpoints"
    "::ClusterIP gives each of four endpoints a quarter of the connections",
    "spread over seven": "spread/two-three-four-and-seven-endpoints"
    "::ClusterIP gives each of seven endpoints a seventh of the connections",
    "session affinity": "affinity/client-ip",
    "session affinity is shared between fronts": "affinity/shared-by-all-frontends"
    "::the external IP follows the affinity learnt at the NodePort",
    "session affinity of each node": "affinity/shared-by-all-frontends"
    "::another node has no affinity for clients that came by node-a",
    "session affinity under the policy Local (55429)": "affinity/client-ip"
    "::ClientIP affinity with policy Local sends an outside host to one local endpoint",
    "session affinity slides": "affinity/timeout-counts-from-the-last-connection"
    "::clients that renewed their affinity before the timeout stay with their pod",
    "session affinity ends (35677)": "affinity/timeout-counts-from-the-last-connection"
    "::clients that did not connect again are spread over both pods",
    "session affinity does not depend on other endpoints (25314, 55603)": "affinity/other-endpoints-change"
    "::ClientIP affinity survives the deletion of an endpoint before the own one",
    "session affinity ends with its endpoint (110302)": "affinity/other-endpoints-change"
    "::clients of a deleted endpoint reach another endpoint at once",
    "session affinity of each port (103000)": "affinity/separate-for-each-port"
    "::ClientIP affinity at a second port picks an endpoint of its own for each client",
    "a hundred clients an endpoint": "affinity/more-clients-than-the-recent-list-holds"
    "::ClientIP affinity forgets some of 150 clients in mode iptables only",
    "external IP owned by nobody": "externalip/unassigned-address",
    "no endpoints, seen by a pod": "clusterip/no-endpoints"
    "::ClusterIP over TCP without a matching pod is rejected at once",
    "no endpoints, seen by a node": "senders/from-a-node"
    "::ClusterIP without endpoints rejects a TCP connection from a node",
    "no endpoints, seen from outside": "clusterip/no-endpoints"
    "::ClusterIP from outside without a matching pod is rejected by the entry node",
    "Service without selector, with hosts as endpoints": "manifests/hosts-as-endpoints",
    "headless": "clusterip/headless",
    "node port through a node with a backend": "nodeport/traffic-policy-cluster"
    "::NodePort with policy Cluster is served by a node with an endpoint",
    "node port through a node without": "nodeport/traffic-policy-cluster"
    "::NodePort with policy Cluster is forwarded by a node without endpoint",
    "node port from a pod": "nodeport/traffic-policy-cluster::NodePort of its own node from a pod is masqueraded",
    "node port from a node": "senders/from-a-node::NodePort of itself from a node is served",
    "node port from loopback": "senders/from-loopback",
    "source by podNetwork and interNode": "nodeport/masquerade-address-by-network",
    "source by podNetwork and interNode, from loopback": "nodeport/masquerade-address-by-network"
    "::NodePort from localhost has the outgoing device's source IP",
    "policy Local at a node port": "nodeport/traffic-policy-local",
    "policy Local at a load balancer": "loadbalancer/health-checked",
    "health-check node port": "loadbalancer/health-check-node-port",
    "drop without a local endpoint": "nodeport/traffic-policy-local"
    "::NodePort with externalTrafficPolicy Local drops on a node without endpoint",
    "short circuit of a pod": "loadbalancer/short-circuits"
    "::load balancer IP with policy Local serves a pod of the node by any endpoint",
    "short circuit of a node (77523, 92761)": "loadbalancer/short-circuits"
    "::load balancer IP with policy Local serves the node itself by any endpoint",
    "internalTrafficPolicy Local": "clusterip/internal-traffic-policy-local",
    "source ranges from outside": "loadbalancer/source-ranges"
    "::loadBalancerSourceRanges drops an outside host beyond the range",
    "source ranges from a pod (85572)": "loadbalancer/source-ranges"
    "::loadBalancerSourceRanges drops a pod beyond the range",
    "source ranges from a node (85572)": "loadbalancer/source-ranges"
    "::loadBalancerSourceRanges drops a node beyond the range",
    "source ranges leave node ports open (122614)": "loadbalancer/source-ranges"
    "::loadBalancerSourceRanges leaves the NodePort open",
    "hairpin (20475), by mode and bridge-nf-call-iptables": "hairpin/on-a-bridge",
    "hairpin on a promiscuous bridge": "hairpin/on-a-promiscuous-bridge",
    "rules that somebody flushed (81517)": "steps/rules-are-flushed",
    "a table that somebody deleted": "steps/nftables-table-deleted",
    "a proxy that is killed and restarted": "steps/proxy-killed-and-restarted",
    "a node that moves to another zone": "steps/node-changes-zone",
    "UDP flows of a Service that has lost all endpoints (139628)": "steps/udp-client-outlives-its-backend",
    "same-node reply past a bridge (21613)": "hairpin/same-node-reply-past-a-bridge",
    "masqueradeAll": "masquerade/all",
    "detect-local by ClusterCIDR": "detect-local/cluster-cidr",
    "detect-local by NodeCIDR": "detect-local/node-cidr",
    "detect-local by BridgeInterface": "detect-local/bridge-interface",
    "detect-local by InterfaceNamePrefix": "detect-local/interface-name-prefix",
    "detect-local by nothing": "detect-local/without-cluster-cidr",
    "another node's pod at a node port (74383), broken": "detect-local/other-nodes-pod-with-cluster-cidr",
    "another node's pod at a node port (74383), dropped": "detect-local/other-nodes-pod-with-node-cidr",
    "terminating endpoints": "terminating/fallback-without-ready-endpoints",
    "terminating endpoints behind a balancer (85643)": "terminating/local-policy-fallback",
    "unready endpoints": "clusterip/no-endpoints::ClusterIP without a ready pod is rejected at once",
    "unready endpoints that are published": "clusterip/publish-not-ready-addresses",
    "hints by zone": "topology/prefer-same-zone",
    "hints by node": "topology/prefer-same-node",
    "hints do not count under the policy Local": "topology/prefer-same-zone"
    "::zone hints are ignored under internalTrafficPolicy Local",
    "host-network endpoints": "clusterip/host-network-endpoints",
    "neighbours and loopback (92315, CVE-2020-8558)": "bugs/92315-neighbours-reach-loopback",
    "a node port behind a Service (28038)": "bugs/28038-node-port-as-endpoint",
    "SCTP": "sctp/associations",
    "echo requests (47156)": "icmp/echo-requests",
    "fragments": "fragments/datagrams-above-the-mtu",
    "each family alone": "families/single-stack-and-dual-stack",
    "segment out of its window (74839)": "bugs/74839-segment-out-of-window",
    "segment out of its window at a node (117924)": "bugs/117924-segment-out-of-window-at-a-node",
    "half of a connection (94861)": "bugs/94861-asymmetric-routing"
    "::a node that sees only one direction of a connection forwards with tcpBeLiberal",
    "masqueraded twice through a tunnel (88986)": "masquerade/once-through-a-tunnel"
    "::ClusterIP from a node through VXLAN does not masquerade the outer packet",
    "two clients with one source port (56903)": "nodeport/two-clients-with-one-source-port",
    "strict reverse path filtering (cilium 13130)": "network/strict-reverse-path",
    "node ports on localhost (111840), on": "senders/from-loopback"
    "::NodePort on localhost reaches a pod of the node in mode iptables",
    "node ports on localhost (57922), under the policy Local": "senders/from-loopback"
    "::NodePort on localhost with externalTrafficPolicy Local is masqueraded",
    "node ports on localhost (111840), off": "nodeport/localhost-node-ports-off"
    "::NodePort at 127.0.0.1 is refused with localhostNodePorts off",
    "nodePortAddresses of one family (89923)": "nodeport/node-port-addresses"
    "::NodePort at any IPv6 address is served if nodePortAddresses lists only IPv4",
    "CVE-2020-8554 (97076)": "externalip/hijacked-address",
    "policy Local leaves the cluster IP alone (85397)": "clusterip/ignores-external-traffic-policy",
    "rejection at every front (17359)": "rejections/at-every-frontend",
    "rejection before a local daemon (97360)": "rejections/daemon-on-the-node-port",
    "rejection in spite of nodePortAddresses (97360)": "rejections/daemon-on-the-node-port"
    "::NodePort number beyond nodePortAddresses rejects in iptables, not in nftables",
    "unused port of a cluster IP (22952)": "untranslated/unused-port-of-a-cluster-ip",
    "none here and none at all": "rejections/no-local-endpoint-or-no-endpoint",
    "Service of another proxy": "clusterip/service-proxy-name-label",
    "ipMode Proxy (KEP-1860)": "loadbalancer/ip-mode-proxy",
    "rolling update under streams (19029, 98305), Cluster": "steps/a-rolling-update"
    "::the old pod is deleted, and streams go on with the new pod",
    "rolling update under streams (85643), Local": "steps/a-rolling-update-behind-a-load-balancer"
    "::the old pod terminates but serves, and no UDP stream loses a packet",
    "asked before the Service was there (48370)": "bugs/48370-udp-before-the-service-exists"
    "::the Service gets an endpoint and the standing UDP flow reaches it",
    "readiness, not existence (105657)": "steps/scaled-to-zero-under-streams"
    "::the pod becomes ready, and streams reach it without loss",
    "another target port (130542)": "bugs/130542-target-port-changes"
    "::the target port changes to 9090 and UDP streams follow",
    "from endpoints to none (139628, 109414)": "steps/scaled-to-zero-under-streams"
    "::the only pod is deleted, and streams are rejected",
    "a restart purges no good flow (122740)": "steps/proxy-killed-under-streams"
    "::the proxy is restarted, and streams keep their conntrack entries",
    "affinity to an endpoint that is gone (110302)": "steps/affinity-when-endpoints-change"
    "::the client's second endpoint is deleted",
    "affinity in spite of other endpoints (25314, 55603)": "steps/affinity-when-endpoints-change"
    "::another endpoint is deleted",
    "one bad object and all others (36652, 73157)": "bugs/73157-external-ip-of-the-wrong-family"
    "::the selector of another Service changes",
    "UDP flows of a Service that is deleted (139628)": "bugs/139628-udp-after-service-deletion"
    "::the Service is deleted and its UDP flows lose their translation",
    "a node that is about to go": "steps/healthz-follows-node-removal::the autoscaler taints node-a for removal",
    "types that change": "steps/service-type-changes::the type changes from NodePort to ExternalName",
    "who is published while it terminates": "steps/publish-not-ready-addresses-switched"
    "::publishNotReadyAddresses is switched on",
    "a Service that another proxy takes over": "steps/service-proxy-name-and-headless-labels"
    "::labels service-proxy-name and headless are added",
    "the last one terminates, by four policies": "steps/last-endpoint-terminates"
    "::the only endpoint terminates and still serves",
    "a protocol goes": "steps/protocol-removed-from-a-port"
    "::UDP is removed from the Service and the second Service is deleted",
    "source ranges that change": "steps/load-balancer-settings-change"
    "::loadBalancerSourceRanges admit only another network",
    "endpoints that move": "steps/endpoints-move::the first endpoint is ready again",
    "what another proxy has left (88698)": "leftovers/rules-of-another-proxy",
    "a policy that changes, on three nodes": "steps/external-policy-on-three-nodes"
    "::externalTrafficPolicy changes to Cluster",
    "links that are cut and mended": "steps/link-failure::the pod's link is mended, and both streams reach it again",
    "a Service by its name": "dns/cluster-ip-by-name",
    "a headless Service by its name": "dns/headless-by-name::DNS name of a headless Service gives the ready pods only",
    "publishNotReadyAddresses in names": "dns/headless-by-name"
    "::DNS name with publishNotReadyAddresses gives unready and terminating pods too",
    "ExternalName": "dns/external-name",
    "every kind of record": "dns/records",
    "names follow readiness": "dns/names-follow-readiness",
    "the name server beside its client on a bridge (21613)": "dns/on-a-bridge",
    "a name server is replaced under a client of one port (19029)": "dns/replaced-server",
}


OVER_BOTH_FAMILIES_IN = {
    "rejection in spite of nodePortAddresses (97360)": "rejections/daemon-on-the-node-port",
    "cluster IP from a pod, which keeps its address": "families/single-stack-and-dual-stack"
    "::ClusterIP over TCP carries data in both directions",
    "cluster IP from outside": "detect-local/cluster-cidr::ClusterCIDR masquerades an outside host at the cluster IP",
    "hairpin on a promiscuous bridge": "hairpin/on-a-bridge",
    "nodePortAddresses of one family (89923)": "nodeport/node-port-addresses",
    "unused port of a cluster IP (22952)": "untranslated/unused-port-of-a-cluster-ip",
}
"""Where a theme is shown over IPv4, over IPv6, and over both in one cluster, if that is not its own place."""

NOT_OVER_IPV6 = {
    "neighbours and loopback (92315, CVE-2020-8558)": "what reaches loopback from a wire is IPv4's route_localnet; the "
    "kernel takes no packet for ::1 from a wire (RFC 4291, 2.5.3)",
    "strict reverse path filtering (cilium 13130)": "rp_filter is a sysctl of IPv4 alone",
    "node ports on localhost (111840), off": "there are none on ::1 that could be turned off, as senders/from-loopback "
    "shows",
}
NOT_OVER_BOTH_AT_ONCE = {
    "masqueraded twice through a tunnel (88986)": "a tunnel is of one family, and its table is the subject",
    "one bad object and all others (36652, 73157)": "in a cluster of both no address is of the wrong family",
}


def written_at(place: str) -> Scenario:
    return written_in(place.partition("::")[0])


@cache
def written_in(file: str) -> Scenario:
    return load_scenario(SCENARIOS / f"{file}.lab.yaml")


def names_in(scenario: Scenario) -> Iterator[str]:
    yield from (each.name for each in (*scenario.probes, *scenario.steps))
    yield from (probe.name for step in scenario.steps for probe in step.probes)


def shown_at(case: Scenario, name: str) -> Iterator[Probe | Stream]:
    """What is sent in a case to show what has that name; without a name, all of it."""
    for step in case.steps:
        mine = name in ("", case.case.words(step.name))
        yield from (probe for probe in step.probes if mine or case.case.words(probe.name).endswith(f": {name}"))
        yield from (stream for stream in case.streams if mine and stream.name in step.expect.streams)
    yield from (probe for probe in case.probes if name in ("", case.case.words(probe.name)))


def dialled(case: Scenario, sent: Probe | Stream) -> Family:
    target = sent.target
    if isinstance(target, AddressTarget):
        return Family.of(target.address)
    return target.family or case.network.families[0]


def families_at(place: str) -> dict[frozenset[Family], set[Family]]:
    """The families that are dialled at a place, by those that the cluster has."""
    written, name = written_at(place), place.partition("::")[2]
    found: dict[frozenset[Family], set[Family]] = {}
    for case in (each for mode in ("iptables", "nftables") for each in cases(written, mode)):
        over = {dialled(case, sent) for sent in shown_at(case, name)}
        found.setdefault(frozenset(case.network.families), set()).update(over)
    return found


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_has_its_scenario(theme: str) -> None:
    name = THEMES[theme].partition("::")[2]
    names = list(names_in(written_at(THEMES[theme])))
    assert names
    assert not name or name in names


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_is_shown_over_both_families_or_it_is_said_why_not(theme: str) -> None:
    found = families_at(OVER_BOTH_FAMILIES_IN.get(theme, THEMES[theme]))
    everywhere = set().union(*found.values())
    assert Family.IPV4 in everywhere
    assert (Family.IPV6 in everywhere) is (theme not in NOT_OVER_IPV6)
    in_one_cluster = found.get(frozenset(Family), set()) == set(Family)
    assert in_one_cluster is (theme not in NOT_OVER_IPV6 and theme not in NOT_OVER_BOTH_AT_ONCE)


def test_every_promise_is_asked_for_in_a_cluster_of_either_family_alone() -> None:
    assert set(families_at("families/single-stack-and-dual-stack")) == {
        frozenset({Family.IPV4}),
        frozenset({Family.IPV6}),
        frozenset(Family),
    }


def test_exceptions_are_of_themes_that_are_there() -> None:
    assert {*OVER_BOTH_FAMILIES_IN, *NOT_OVER_IPV6, *NOT_OVER_BOTH_AT_ONCE} <= set(THEMES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SCENARIOS).as_posix())
def test_a_file_dials_both_families_or_says_that_it_does_not(path: Path) -> None:
    place = path.relative_to(SCENARIOS).as_posix().removesuffix(".lab.yaml")
    dialled = set().union(*families_at(place).values())
    assert dialled == set(Family) or (dialled == {Family.IPV4} and "IPv4 alone" in path.read_text(encoding="utf-8"))


def test_a_scenario_says_why_it_is_there_and_where_to_read_on() -> None:
    assert len(FILES) >= 40
    for path in FILES:
        scenario = load_scenario(path)
        assert scenario.description.endswith("."), path
        assert scenario.links, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SCENARIOS).as_posix())
def test_a_scenario_is_called_as_its_file_and_says_where_packets_end(path: Path) -> None:
    place = path.relative_to(SCENARIOS).as_posix().removesuffix(".lab.yaml")
    scenario = written_at(place)
    assert scenario.name == place.replace("/", "-")
    probes = (*scenario.probes, *(probe for step in scenario.steps for probe in step.probes))
    ends = {Outcome.REJECTED, Outcome.DROPPED, Outcome.UNTRANSLATED}
    assert [probe.name for probe in probes if probe.expect.outcome in ends and probe.expect.at is None] == []
