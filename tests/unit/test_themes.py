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
    "cluster IP from a pod, which keeps its address": "clusterip/from-a-pod::a backend sees the pod that dialled",
    "cluster IP from a node, which is masqueraded": "senders/from-a-node::a node reaches a pod elsewhere",
    "cluster IP from outside": "clusterip/from-a-pod::an outside host is masqueraded where it enters, "
    "on the way to another node",
    "several ports": "clusterip/several-ports",
    "several protocols on one port": "clusterip/one-port-over-tcp-and-udp",
    "spread over two endpoints": "spread/two-three-four-and-seven-endpoints::two endpoints get a half each",
    "spread over three": "spread/two-three-four-and-seven-endpoints::three get a third each",
    "spread over four": "spread/two-three-four-and-seven-endpoints::four get a quarter each",
    "spread over seven": "spread/two-three-four-and-seven-endpoints::seven get a seventh each",
    "session affinity": "affinity/client-ip",
    "session affinity is shared between fronts": "affinity/shared-by-all-frontends::so does the external IP",
    "session affinity of each node": "affinity/shared-by-all-frontends::another node remembers nobody",
    "session affinity under the policy Local (55429)": "affinity/client-ip::an outside host's connections go to one "
    "backend of the node",
    "session affinity slides": "affinity/timeout-counts-from-the-last-connection::who came again belongs there still",
    "session affinity ends (35677)": "affinity/timeout-counts-from-the-last-connection::who came once is a stranger",
    "session affinity does not depend on other endpoints (25314, 55603)": "affinity/other-endpoints-change::with the "
    "first gone they stay",
    "session affinity ends with its endpoint (110302)": "affinity/other-endpoints-change::then they are led "
    "elsewhere at once",
    "session affinity of each port (103000)": "affinity/separate-for-each-port"
    "::by the second port each of them is led to any "
    "pod, and stays there",
    "a hundred clients an endpoint": "affinity/more-clients-than-the-recent-list-holds"
    "::of many some have been forgotten",
    "external IP owned by nobody": "externalip/unassigned-address",
    "no endpoints, seen by a pod": "clusterip/no-endpoints::a pod hears at once that no pod matches",
    "no endpoints, seen by a node": "senders/from-a-node::a node is told that nobody is there",
    "no endpoints, seen from outside": "clusterip/no-endpoints::an outside host hears it from the node it enters by",
    "Service without selector, with hosts as endpoints": "manifests/hosts-as-endpoints",
    "headless": "clusterip/headless",
    "node port through a node with a backend": "nodeport/traffic-policy-cluster::a node with an endpoint answers",
    "node port through a node without": "nodeport/traffic-policy-cluster::a node without endpoint passes it on",
    "node port from a pod": "nodeport/traffic-policy-cluster::a pod dials its own node",
    "node port from a node": "senders/from-a-node::a node dials its own node port",
    "node port from loopback": "senders/from-loopback",
    "source by podNetwork and interNode": "nodeport/masquerade-address-by-network",
    "source by podNetwork and interNode, from loopback": "nodeport/masquerade-address-by-network"
    "::a node by its loopback address",
    "policy Local at a node port": "nodeport/traffic-policy-local",
    "policy Local at a load balancer": "loadbalancer/health-checked",
    "health-check node port": "loadbalancer/health-check-node-port",
    "drop without a local endpoint": "nodeport/traffic-policy-local::a node without endpoint drops",
    "short circuit of a pod": "loadbalancer/short-circuits::a pod is served and keeps its address",
    "short circuit of a node (77523, 92761)": "loadbalancer/short-circuits::a node is served as itself",
    "internalTrafficPolicy Local": "clusterip/internal-traffic-policy-local",
    "source ranges from outside": "loadbalancer/source-ranges::a host that is not of the range is dropped",
    "source ranges from a pod (85572)": "loadbalancer/source-ranges::a pod that is not of the range is dropped too",
    "source ranges from a node (85572)": "loadbalancer/source-ranges::a node that is not of the range is dropped too",
    "source ranges leave node ports open (122614)": "loadbalancer/source-ranges::the node port stays open",
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
    "unready endpoints": "clusterip/no-endpoints::a pod hears at once that no pod is ready",
    "unready endpoints that are published": "clusterip/publish-not-ready-addresses",
    "hints by zone": "topology/prefer-same-zone",
    "hints by node": "topology/prefer-same-node",
    "hints do not count under the policy Local": "topology/prefer-same-zone::under the policy Local they do not",
    "host-network endpoints": "clusterip/host-network-endpoints",
    "neighbours and loopback (92315, CVE-2020-8558)": "bugs/92315-neighbours-reach-loopback",
    "a node port behind a Service (28038)": "bugs/28038-node-port-as-endpoint",
    "SCTP": "sctp/associations",
    "echo requests (47156)": "icmp/echo-requests",
    "fragments": "fragments/datagrams-above-the-mtu",
    "each family alone": "families/single-stack-and-dual-stack",
    "segment out of its window (74839)": "bugs/74839-segment-out-of-window",
    "segment out of its window at a node (117924)": "bugs/117924-segment-out-of-window-at-a-node",
    "half of a connection (94861)": "bugs/94861-asymmetric-routing::what a node sees half of is carried by a liberal "
    "kernel",
    "masqueraded twice through a tunnel (88986)": "masquerade/once-through-a-tunnel::a node's own datagram",
    "two clients with one source port (56903)": "nodeport/two-clients-with-one-source-port",
    "strict reverse path filtering (cilium 13130)": "network/strict-reverse-path",
    "node ports on localhost (111840), on": "senders/from-loopback::localhost leads to a pod of the node",
    "node ports on localhost (57922), under the policy Local": "senders/from-loopback"
    "::localhost is masqueraded under the policy Local, too",
    "node ports on localhost (111840), off": "nodeport/localhost-node-ports-off::loopback has no node port",
    "nodePortAddresses of one family (89923)": "nodeport/node-port-addresses::every address of IPv6 has them, "
    "since the list names none",
    "CVE-2020-8554 (97076)": "externalip/hijacked-address",
    "policy Local leaves the cluster IP alone (85397)": "clusterip/ignores-external-traffic-policy",
    "rejection at every front (17359)": "rejections/at-every-frontend",
    "rejection before a local daemon (97360)": "rejections/daemon-on-the-node-port",
    "rejection in spite of nodePortAddresses (97360)": "rejections/daemon-on-the-node-port"
    "::a pod is rejected at an address without node ports, which is a limit of upstream",
    "unused port of a cluster IP (22952)": "untranslated/unused-port-of-a-cluster-ip",
    "none here and none at all": "rejections/no-local-endpoint-or-no-endpoint",
    "Service of another proxy": "clusterip/service-proxy-name-label",
    "ipMode Proxy (KEP-1860)": "loadbalancer/ip-mode-proxy",
    "rolling update under streams (19029, 98305), Cluster": "steps/a-rolling-update::the old one is gone",
    "rolling update under streams (85643), Local": "steps/a-rolling-update-behind-a-load-balancer"
    "::the old one terminates and serves",
    "asked before the Service was there (48370)": "bugs/48370-udp-before-the-service-exists::so is its endpoint",
    "readiness, not existence (105657)": "steps/scaled-to-zero-under-streams::it is ready",
    "another target port (130542)": "bugs/130542-target-port-changes::at the other",
    "from endpoints to none (139628, 109414)": "steps/scaled-to-zero-under-streams::nobody is there",
    "a restart purges no good flow (122740)": "steps/proxy-killed-under-streams::it is restarted",
    "affinity to an endpoint that is gone (110302)": "steps/affinity-when-endpoints-change::its backend is gone",
    "affinity in spite of other endpoints (25314, 55603)": "steps/affinity-when-endpoints-change::another goes",
    "one bad object and all others (36652, 73157)": "bugs/73157-external-ip-of-the-wrong-family"
    "::another Service changes",
    "UDP flows of a Service that is deleted (139628)": "bugs/139628-udp-after-service-deletion"
    "::the Service is deleted and its pods serve to their end",
    "a node that is about to go": "steps/healthz-follows-node-removal::the autoscaler is about to remove it",
    "types that change": "steps/service-type-changes::from a node port to a name",
    "who is published while it terminates": "steps/publish-not-ready-addresses-switched::published again",
    "a Service that another proxy takes over": "steps/service-proxy-name-and-headless-labels::the labels are put on",
    "the last one terminates, by four policies": "steps/last-endpoint-terminates::it terminates and serves",
    "a protocol goes": "steps/protocol-removed-from-a-port::UDP goes",
    "source ranges that change": "steps/load-balancer-settings-change::only from another network",
    "endpoints that move": "steps/endpoints-move::the first comes back",
    "what another proxy has left (88698)": "leftovers/rules-of-another-proxy",
    "a policy that changes, on three nodes": "steps/external-policy-on-three-nodes::Cluster",
    "links that are cut and mended": "steps/link-failure::its link is mended",
    "a Service by its name": "dns/cluster-ip-by-name",
    "a headless Service by its name": "dns/headless-by-name::the name gives the ready pods",
    "publishNotReadyAddresses in names": "dns/headless-by-name::whoever is not ready is given where that is asked for",
    "ExternalName": "dns/external-name",
    "every kind of record": "dns/records",
    "names follow readiness": "dns/names-follow-readiness",
    "the name server beside its client on a bridge (21613)": "dns/on-a-bridge",
    "a name server is replaced under a client of one port (19029)": "dns/replaced-server",
}


OVER_BOTH_FAMILIES_IN = {
    "rejection in spite of nodePortAddresses (97360)": "rejections/daemon-on-the-node-port",
    "cluster IP from a pod, which keeps its address": "families/single-stack-and-dual-stack"
    "::data goes both ways over TCP",
    "cluster IP from outside": "detect-local/cluster-cidr::a stranger is masqueraded",
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
