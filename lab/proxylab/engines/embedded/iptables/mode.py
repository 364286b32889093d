"""Mode iptables, with all in which it differs from the other modes."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from proxylab.cluster.configuration import Mode, ProxyConfiguration, go_duration
from proxylab.engines.embedded.iptables import texts
from proxylab.engines.embedded.iptables.matches import COUNTED
from proxylab.engines.embedded.iptables.mutants import EQUIVALENTS, MUTANT_LINES, loaded_rules
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.engines.proxy_mode import ProxyMode

_LOCALHOST_NODE_PORTS: Final = (1, 26)
"""The first version with ``localhostNodePorts``. Those before it serve node ports on 127.0.0.1 always."""


def _at_version(settings: ProxySettings, version: tuple[int, ...]) -> ProxySettings:
    return settings if version >= _LOCALHOST_NODE_PORTS else replace(settings, localhost_node_ports=True)


def _keys(proxy: ProxyConfiguration) -> Mapping[str, Any]:
    section = {
        "masqueradeBit": proxy.masquerade_bit,
        "masqueradeAll": proxy.masquerade_all,
        "syncPeriod": go_duration(proxy.sync_period),
        "minSyncPeriod": go_duration(proxy.min_sync_period),
        "localhostNodePorts": proxy.localhost_node_ports,
    }
    return {"iptables": section}


MODE: Final = ProxyMode(
    word=Mode.IPTABLES,
    package=__package__,
    about={
        "embedded/iptables": "Writes the rules of 1.36 and 1.37. No UDP flow outlives its endpoint.",
        "embedded@v1.23/iptables": "Writes the rules of the versions before 1.24, with their KUBE-XLB- chains.",
        "embedded@v1.34/iptables": "As 1.32 to 1.36: forgets UDP flows only of Services that still have an endpoint.",
        "kube-proxy/iptables": "Upstream's binary in mode iptables.",
    },
    settings=ProxySettings.of,
    at_version=_at_version,
    periods=lambda proxy: Periods(least=proxy.min_sync_period, sync=proxy.sync_period),
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
    packet_counters=COUNTED,
    reads=frozenset(
        (
            *("localhost_node_ports", "masquerade_all", "masquerade_bit", "sync_period"),
            *("node_port_addresses", "node_port_primary"),
        )
    ),
    keys=_keys,
    counts_divide=True,
    # Modes iptables and ipvs leave each other's rules: ``kube-proxy --cleanup`` or a restart of the node removes them.
    removes=(Mode.NFTABLES, Mode.USERSPACE),
)
