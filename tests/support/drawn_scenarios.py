"""Hypothesis strategies for whole scenarios.

``scenario_texts`` draws files without mistakes, of every topology.
"""

import json
from typing import Any

from drawn_steps import step_sequences
from hypothesis import strategies as st

__all__ = ["proxy_documents", "scenario_documents", "scenario_texts", "service_documents", "slice_documents"]

_NAMES = ("echo", "web", "dns")
_ZONES = ("zone-a", "zone-b")
_Document = dict[str, Any]


def _nodes(families: list[str]) -> st.SearchStrategy[_Document]:
    balanced = "192.0.2.9/32" if "IPv4" in families else "2001:db8::9/128"
    node = st.fixed_dictionaries(
        {},
        optional={
            "labels": st.fixed_dictionaries({"topology.kubernetes.io/zone": st.sampled_from(_ZONES)}),
            "taints": st.just(["ToBeDeletedByClusterAutoscaler"]),
            "terminating": st.booleans(),
            "sysctls": st.fixed_dictionaries({"net.ipv4.conf.all.route_localnet": st.sampled_from(["0", "1"])}),
            "addresses": st.just([{"address": balanced, "device": "lo"}]),
            "daemons": st.fixed_dictionaries({"kubelet": st.fixed_dictionaries({"port": st.integers(1, 65535)})}),
        },
    )
    return st.integers(1, 3).flatmap(lambda count: st.fixed_dictionaries({f"node-{n}": node for n in range(count)}))


def _pods(nodes: list[str]) -> st.SearchStrategy[_Document]:
    port = st.fixed_dictionaries({"port": st.integers(1, 65535), "protocol": st.sampled_from(["TCP", "UDP", "SCTP"])})
    pod = st.fixed_dictionaries(
        {"ports": st.lists(port, max_size=2, unique_by=lambda each: (each["port"], each["protocol"]))},
        optional={
            "replicas": st.integers(1, 4),
            "nodes": st.lists(st.sampled_from(nodes), min_size=1, max_size=3),
            "ready": st.booleans(),
            "terminating": st.just(True),
            "namespace": st.sampled_from(["default", "prod"]),
        },
    )
    labelled = {name: _labelled(pod, name) for name in _NAMES}
    return st.fixed_dictionaries({"client": st.just({})}, optional=labelled)


def _labelled(pod: st.SearchStrategy[_Document], name: str) -> st.SearchStrategy[_Document]:
    return pod.map(lambda each: {**each, "labels": {"app": name}})


def _network() -> st.SearchStrategy[_Document]:
    return st.fixed_dictionaries(
        {},
        optional={
            "families": st.sampled_from([["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"]]),
            "podNetwork": st.sampled_from(["ptp", "ptp-unnumbered", "bridge"]),
            "hairpin": st.sampled_from(["hairpin-veth", "promiscuous-bridge", "none"]),
            "interNode": st.sampled_from(["host-gw", "vxlan"]),
        },
    )


def _expectations(nodes: list[str]) -> st.SearchStrategy[_Document]:
    device = st.fixed_dictionaries(
        {"node": st.sampled_from(nodes), "device": st.sampled_from(["uplink", "pods", "overlay"])}
    )
    delivered = st.fixed_dictionaries(
        {"outcome": st.just("delivered"), "source": st.one_of(st.just("preserved"), st.just("192.0.2.1"), device)},
        optional={"reply": st.sampled_from(["translated", "untranslated"])},
    )
    netns_names = [*nodes, f"{nodes[0]}/eth0"]
    rejected = st.fixed_dictionaries({"outcome": st.just("rejected")}, optional={"at": st.sampled_from(netns_names)})
    lost = st.fixed_dictionaries(
        {"outcome": st.sampled_from(["refused", "dropped", "untranslated"])},
        optional={"at": st.sampled_from([*netns_names, "client"])},
    )
    return st.one_of(delivered, rejected, lost)


@st.composite
def scenario_documents(draw: st.DrawFn) -> _Document:
    """The Scenario document of a file, as plain data. It dials the Services of ``service_documents``."""
    network = draw(_network())
    nodes = draw(_nodes(network.get("families", ["IPv4"])))
    names = list(nodes)
    pods = draw(_pods(names))
    services = st.fixed_dictionaries({"service": st.sampled_from(_NAMES), "via": st.just("clusterIP")})
    by_name = st.fixed_dictionaries({"service": st.sampled_from(_NAMES), "via": st.just("dnsName")})
    elsewhere = st.just({"address": "203.0.113.77", "port": 80})
    rest = {
        "send": st.fixed_dictionaries({"as": st.sampled_from(["connect", "packet"]), "payload": st.integers(0, 99)}),
        "expect": _expectations(names),
    }
    anywhere, inside = st.sampled_from(["client", "outside", names[0]]), st.sampled_from(["client", names[0]])
    probe = st.one_of(
        st.fixed_dictionaries({"from": anywhere, "to": st.one_of(services, elsewhere), **rest}),
        st.fixed_dictionaries({"from": inside, "to": by_name, **rest}),
    )
    probes = draw(st.lists(probe, max_size=4, unique_by=lambda each: json.dumps([each["from"], each["to"]])))
    matrix = draw(
        st.fixed_dictionaries(
            {}, optional={"podNetwork": st.just(["ptp", "bridge"]), "net.ipv4.ip_forward": st.just(["0", "1"])}
        )
    )
    spec = {
        "network": network,
        "nodes": nodes,
        "pods": pods,
        "hosts": {"outside": {}},
        "probes": [{"name": f"probe {number}", **each} for number, each in enumerate(probes)],
        **({"matrix": matrix} if matrix else {}),
        **({"dns": True} if draw(st.booleans()) else {}),
        **(draw(step_sequences(names)) if draw(st.booleans()) else {}),
    }
    return {"apiVersion": "proxylab/v1", "kind": "Scenario", "metadata": {"name": "drawn"}, "spec": spec}


def service_documents(name: str) -> st.SearchStrategy[_Document]:
    """A Service of that name that an API server would accept."""
    exposed = st.fixed_dictionaries(
        {"type": st.sampled_from(["NodePort", "LoadBalancer"])},
        optional={"externalTrafficPolicy": st.sampled_from(["Cluster", "Local"])},
    )
    inner = st.fixed_dictionaries({}, optional={"internalTrafficPolicy": st.sampled_from(["Cluster", "Local"])})
    common = st.fixed_dictionaries(
        {"ports": st.integers(1, 65535).filter(lambda port: port != 10250).map(lambda port: [{"port": port}])},
        optional={
            "selector": st.just({"app": name}),
            "publishNotReadyAddresses": st.booleans(),
            "sessionAffinity": st.sampled_from(["None", "ClientIP"]),
            "trafficDistribution": st.sampled_from(["PreferClose", "PreferSameNode"]),
        },
    )
    spec = st.tuples(common, st.one_of(exposed, inner)).map(lambda parts: {**parts[0], **parts[1]})
    head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    return spec.map(lambda each: {**head, "spec": each})


def slice_documents(name: str) -> st.SearchStrategy[_Document]:
    """An EndpointSlice of the Service of that name."""
    conditions = st.fixed_dictionaries({}, optional={key: st.booleans() for key in ("ready", "serving", "terminating")})
    endpoint = st.fixed_dictionaries(
        {"addresses": st.integers(1, 254).map(lambda number: [f"203.0.113.{number}"])},
        optional={"conditions": conditions, "zone": st.sampled_from(_ZONES), "nodeName": st.just("node-0")},
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("discovery.k8s.io/v1"),
            "kind": st.just("EndpointSlice"),
            "metadata": st.just({"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}}),
            "addressType": st.just("IPv4"),
            "ports": st.integers(1, 65535).map(lambda port: [{"port": port}]),
            "endpoints": st.lists(endpoint, max_size=3),
        }
    )


def proxy_documents() -> st.SearchStrategy[_Document]:
    """A KubeProxyConfiguration."""
    seconds = st.integers(1, 100).map(lambda number: f"{number}s")
    return st.fixed_dictionaries(
        {"apiVersion": st.just("kubeproxy.config.k8s.io/v1alpha1"), "kind": st.just("KubeProxyConfiguration")},
        optional={
            "clusterCIDR": st.sampled_from(["", "10.244.0.0/16"]),
            "nodePortAddresses": st.sampled_from([["primary"], ["172.18.0.0/16"]]),
            "iptables": st.fixed_dictionaries({}, optional={"masqueradeAll": st.booleans()}),
            "conntrack": st.fixed_dictionaries({}, optional={"udpTimeout": seconds, "tcpBeLiberal": st.booleans()}),
            "healthzBindAddress": st.sampled_from(["0.0.0.0:10256", "[::]:1"]),
        },
    )


@st.composite
def scenario_texts(draw: st.DrawFn) -> str:
    """The text of a scenario file without mistakes, with the manifests it dials and a configuration of its proxies."""
    documents = [draw(scenario_documents()), *(draw(service_documents(name)) for name in _NAMES)]
    documents += [draw(each) for each in (slice_documents("dns"), proxy_documents()) if draw(st.booleans())]
    return "---\n".join(json.dumps(document) + "\n" for document in documents)
