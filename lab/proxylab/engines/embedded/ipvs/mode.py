"""Mode ipvs, with all in which it differs from the other modes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxylab.addresses import Transport
from proxylab.capability import CapabilityName
from proxylab.cluster.configuration import Mode, ProxyConfiguration, go_duration
from proxylab.engines.embedded.iptables.mutants import loaded_rules
from proxylab.engines.embedded.ipvs import texts
from proxylab.engines.embedded.ipvs.mutants import EQUIVALENTS, MUTANT_LINES
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.kubeproxy.log import VERBOSE, SyncLog
from proxylab.engines.proxy_mode import WITHOUT_INVALID_RULE, KubeProxyTraits, Lacks, ProxyMode
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Manner


def _keys(proxy: ProxyConfiguration) -> Mapping[str, Any]:
    own = proxy.ipvs
    section = {
        "scheduler": own.scheduler,
        "excludeCIDRs": list(map(str, own.exclude_cidrs)),
        "strictARP": own.strict_arp,
        "tcpTimeout": go_duration(own.tcp),
        "tcpFinTimeout": go_duration(own.tcp_fin),
        "udpTimeout": go_duration(own.udp),
        "syncPeriod": go_duration(own.sync_period),
        "minSyncPeriod": go_duration(own.min_sync_period),
    }
    return {"ipvs": section}


def _lack_of_probe(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Iterator[str]:
    """A datagram above the MTU from a node's program.

    The program reaches a Service by a route to the node itself, whose MTU is large. IPVS then refuses to fragment its
    datagram (``ensure_mtu_is_adequate``, net/netfilter/ipvs/ip_vs_xmit.c), and the program must send it again.
    """
    large = resolved.protocol is Transport.UDP and probe.send.payload > resolved.sender.mtu
    if large and probe.send.manner is Manner.CONNECT and probe.source.name in assembly.nodes:
        yield "in mode ipvs a node's program gets EMSGSIZE for its first datagram above the MTU"


MODE: Final = ProxyMode(
    word=Mode.IPVS,
    package=__package__,
    about={
        "embedded/ipvs": "Writes the virtual servers, sets and rules of 1.37; needs a kernel with IPVS (--kernel uml).",
        "kube-proxy/ipvs": "Upstream's binary in mode ipvs, which 1.35 deprecated.",
    },
    settings=texts.settings,
    periods=lambda proxy: Periods(least=proxy.ipvs.min_sync_period, sync=proxy.ipvs.sync_period),
    assume=texts.assume,
    load=texts.load,
    read=texts.read,
    differences=texts.differences,
    by_family=texts.by_family,
    holds=texts.holds,
    without=texts.without,
    loaded=loaded_rules,
    mutants=MUTANT_LINES,
    equivalents=EQUIVALENTS,
    failures="iptables_restore_failures",
    alike={
        "KubeProxyConfiguration.ipvs.strictARP: turned on": "it leaves ARP requests for addresses of kube-ipvs0 "
        "without an answer, and a lab refuses a probe to an address on a link that no device there has; the host in "
        "scenarios/ipvs/test_strict_arp_and_excluded_networks.py dials one"
    },
    unread=WITHOUT_INVALID_RULE,
    reads=frozenset(("ipvs", "masquerade_all", "masquerade_bit", "node_port_addresses", "node_port_primary")),
    keys=_keys,
    lacks=Lacks(of_probe=_lack_of_probe),
    removes=(Mode.NFTABLES,),
    by_interfaces=True,
    # kube-proxy starts some eighty programs for each family in its first sync, and a busy guest starts few a second:
    # with twelve guests on two processors, one sync took up to 48 s, and a lab waits for several in a row.
    sync_seconds=240.0,
    needs=(CapabilityName.IPVS, CapabilityName.DUMMY),
    needs_of_kube_proxy=(CapabilityName.IPSET,),
    kube_proxy=KubeProxyTraits(
        flags=VERBOSE,
        log=SyncLog,
        always_full=True,
        modules_before=(1, 27),  # CanUseIPVSProxier in pkg/proxy/ipvs
    ),
)
