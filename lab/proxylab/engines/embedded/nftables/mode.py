"""Mode nftables, with all in which it differs from the other modes."""

from collections.abc import Mapping
from typing import Any, Final

from proxylab.capability import CapabilityName
from proxylab.cluster.configuration import Mode, ProxyConfiguration, go_duration
from proxylab.engines.embedded.nftables import texts
from proxylab.engines.embedded.nftables.mutants import EQUIVALENTS, MUTANT_LINES, loaded_rules
from proxylab.engines.embedded.nftables.names import CLUSTER_IPS_CHECK, TABLE, UNASSIGNED
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.proxy_mode import WITHOUT_INVALID_RULE, CommentedRule, KubeProxyTraits, ProxyMode


def _keys(proxy: ProxyConfiguration) -> Mapping[str, Any]:
    section = {
        "masqueradeBit": proxy.nftables.masquerade_bit,
        "masqueradeAll": proxy.nftables.masquerade_all,
        "syncPeriod": go_duration(proxy.nftables.sync_period),
        "minSyncPeriod": go_duration(proxy.nftables.min_sync_period),
    }
    return {"nftables": section}


MODE: Final = ProxyMode(
    word=Mode.NFTABLES,
    package=__package__,
    about={
        "embedded/nftables": "Writes the table of 1.37. No UDP flow outlives its endpoint.",
        "kube-proxy/nftables": "Upstream's binary in mode nftables.",
    },
    settings=texts.settings,
    periods=lambda proxy: Periods(least=proxy.nftables.min_sync_period, sync=proxy.nftables.sync_period),
    load=texts.load,
    read=texts.read,
    differences=texts.differences,
    by_family=texts.by_family,
    holds=texts.holds,
    without=texts.without,
    loaded=loaded_rules,
    mutants=MUTANT_LINES,
    equivalents=EQUIVALENTS,
    alike={
        "KubeProxyConfiguration.nodePortPrimary: turned off": "without nodePortAddresses it serves the same address",
    },
    unread=WITHOUT_INVALID_RULE,
    failures="nftables_sync_failures",
    reads=frozenset(("nftables", "node_port_addresses", "node_port_primary", "service_cidrs")),
    keys=_keys,
    feature_gates={"KubeProxyNFTablesLocalhostNodePorts": False, "NFTablesProxyMode": True},
    # The chains of mode ipvs go first, since mode iptables has some of their names too.
    removes=(Mode.IPVS, Mode.IPTABLES, Mode.USERSPACE),
    needs=(CapabilityName.NFTABLES,),
    kube_proxy=KubeProxyTraits(
        serves_loopback=True,
        rule_of_service_networks=CommentedRule(TABLE, CLUSTER_IPS_CHECK, UNASSIGNED),
    ),
)
