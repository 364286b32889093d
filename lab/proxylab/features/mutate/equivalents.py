"""Mutants of objects that no packet can tell from the truth, each with its proof.

``_UNREAD`` and ``_READ`` have fields, as ``ObjectMutation.where`` has them without the positions of elements. No
proxy reads the former, and only proxies in some modes the latter, whatever they become. ``_ALIKE`` has single changes.
"""

import re
from collections.abc import Mapping, Set
from typing import Final

from proxylab.cluster.configuration import KEYS_OF_MODES
from proxylab.cluster.documents import camel_case
from proxylab.cluster.objects import HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL, ZONE_LABEL
from proxylab.engines.modes import MODES
from proxylab.mutate.objects import EVENTS, ObjectMutation

_ORDER: Final = "a proxy takes them as a set, of which each has its own meaning"
_SLICES: Final = "a proxy reads the EndpointSlices, which the control plane has made of it"
_TEXT: Final = "the text of an address that the API server stored in another form, with the same meaning"
_FAMILIES: Final = "a proxy reads the families of clusterIPs"
_NAME_SERVERS: Final = "only name servers read it"
_TIMES: Final = "it becomes a sysctl of the node, which unit tests compare: no connection of a probe idles so long"
_PACE: Final = "it says how soon a proxy follows, and the lab waits until the proxy has"

_UNREAD: Final[Mapping[str, str]] = {
    "Service.selector": _SLICES,
    "Service.publishNotReadyAddresses": _SLICES,
    "Service.trafficDistribution": "a proxy reads the hints in EndpointSlices, which the control plane has made of it",
    "Service.ports.targetPort": _SLICES,
    "Service.annotations": "a proxy reads none since Kubernetes 1.27",
    "Service.ipFamilies": _FAMILIES,
    "Service.ipFamilyPolicy": _FAMILIES,
    "Service.allocateNodePorts": "a proxy reads the node ports, which the control plane has allocated or not",
    "Service.externalName": _NAME_SERVERS,
    "Service.loadBalancerIngress.hostname": "a proxy serves addresses only",
    "Service.stored": _TEXT,
    "EndpointSlice.name": "a proxy tells slices apart by it, and reads nothing else in it",
    "EndpointSlice.stored": _TEXT,
    "EndpointSlice.endpoints.zone": "a proxy reads the hints, which the control plane has made of it",
    "EndpointSlice.endpoints.hostname": _NAME_SERVERS,
    "EndpointSlice.endpoints.target": "a proxy reads the address, not the pod's name",
    "ServiceCIDR.name": "a proxy reads the networks of all of them",
    "KubeProxyConfiguration.conntrack.tcpEstablished": _TIMES,
    "KubeProxyConfiguration.conntrack.tcpCloseWait": _TIMES,
    "KubeProxyConfiguration.conntrack.udp": _TIMES,
    "KubeProxyConfiguration.conntrack.udpStream": _TIMES,
    "KubeProxyConfiguration.minSyncPeriod": _PACE,
    "KubeProxyConfiguration.nftables.minSyncPeriod": _PACE,
    "KubeProxyConfiguration.ipvs.minSyncPeriod": _PACE,
    "KubeProxyConfiguration.featureGates": "an embedded engine has one value of each gate, and refuses others",
}

_READ: Final[Mapping[str, str]] = {
    "ServiceCIDR": "service_cidrs",
    **{f"KubeProxyConfiguration.{camel_case(name)}": name for name in (*KEYS_OF_MODES, "sync_period")},
}
"""What not every mode reads, by the name in ``ProxyMode.reads``."""

_ALIKE: Final[Mapping[str, str]] = {
    "Service.type: as LoadBalancer": "only its addresses and its healthCheckNodePort make it another than a NodePort",
    **dict.fromkeys(
        (f"KubeProxyConfiguration.{each}syncPeriod: one more" for each in ("", "nftables.", "ipvs.")),
        "a proxy finds out a second later that another program has flushed its rules, and the lab waits for that",
    ),
    "Node.addresses: first and last exchanged": "a proxy takes the first address of each family, and a Node in a "
    "lab has one of each",
    "Service.headless: turned off": "a Service without clusterIPs has no rules either",
    "Service.labels[service.kubernetes.io/service-proxy-name]: another": "only proxies of that name serve it, and the "
    "lab's have none",
    **dict.fromkeys(
        (
            f"EndpointSlice.labels[service.kubernetes.io/service-proxy-name]: {change}"
            for change in ("another", "left out")
        ),
        "a proxy ignores the Service, which has the label too",
    ),
}

_WITHOUT: Final[Mapping[str, Set[str]]] = {
    "internalTrafficPolicy": {"last ingress address", "last external IP", "node ports"},
    "sourceRanges": {"last external IP", "node ports"},
}
"""Settings of a Service, and the parts for which they do not count: they are for its cluster IP, or for the addresses
of its load balancer, alone."""

_LABELS: Final = frozenset({SERVICE_PROXY_NAME_LABEL, HEADLESS_LABEL, ZONE_LABEL})
"""Those that a proxy reads."""

_ORDERED: Final = frozenset({"Node.addresses"})
"""Lists of plain values whose order has a meaning."""

_POSITION: Final = re.compile(r"\[[^\]]*\]")
_LABEL: Final = re.compile(r"\.labels\[(?P<key>[^\]]*)\]")


def proof_of_mutation(mutation: ObjectMutation, mode: str) -> str:
    """Why no packet can tell the mutation from the truth in a mode of the proxy; empty without a proof.

    What a proxy does not read of a kind of objects at all, it does not read of their later events either.
    """
    field = _POSITION.sub("", mutation.where).removeprefix(EVENTS)
    is_ordered = field in _ORDERED or field in MODES[mode].ordered
    if mutation.change == "first and last exchanged" and not is_ordered:
        return _ORDER
    if (label := _LABEL.search(mutation.where)) and label["key"] not in _LABELS:
        return "a proxy reads no such label"
    setting, _, part = field.removeprefix("Service.").partition(" of the ")
    if part in _WITHOUT.get(setting, ()):
        return f"{setting} does not count for the {part}"
    if any(name not in MODES[mode].reads for each, name in _READ.items() if _is_in(field, each)):
        return f"a proxy in mode {mode} does not read it"
    if mutation.key in MODES[mode].alike:
        return MODES[mode].alike[mutation.key]
    whole = field.partition(" of the ")[0]
    of_mode = next((proof for each, proof in MODES[mode].unread.items() if _is_in(whole, each)), "")
    unread = of_mode or next((proof for each, proof in _UNREAD.items() if _is_in(field, each)), "")
    return unread or _ALIKE.get(mutation.key, "")


def _is_in(field: str, whole: str) -> bool:
    return field == whole or field.startswith(f"{whole}.")
