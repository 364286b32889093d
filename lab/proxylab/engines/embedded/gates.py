"""Feature gates of kube-proxy in the embedded engines: which they have, which they refuse, and what the others do.

An embedded engine refuses every setting that it does not behave as: gates that it does not know, and words for node
ports.
"""

from collections.abc import Mapping
from typing import Final

from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.engines.modes import MODES
from proxylab.errors import EngineError, ScenarioError

_EXTERNAL_IPS: Final = "AllowServiceExternalIPs"
_IPVS: Final = "KubeProxyIPVS"

_EITHER: Final = frozenset((True, False))
_GATES: Final[Mapping[str, frozenset[bool]]] = {
    _EXTERNAL_IPS: _EITHER,
    _IPVS: _EITHER,
    "NFTablesNetlink": _EITHER,  # how kube-proxy loads its rules, not which
    "PreferSameTrafficDistribution": frozenset((True,)),
    "ServiceTrafficDistribution": frozenset((True,)),
    **{name: frozenset((value,)) for mode in MODES.values() for name, value in mode.feature_gates.items()},
}
"""The gates that concern what a proxy does, each with the values that embedded engines behave like."""


def allows_external_ips(configuration: ProxyConfiguration) -> bool:
    """Whether the proxy serves external IPs (KEP-5707)."""
    return configuration.feature_gates.get(_EXTERNAL_IPS, True)


def refuse_mode(node: str, mode: str, configuration: ProxyConfiguration) -> None:
    """Refuse to start in mode ipvs where its gate is off, in kube-proxy's words.

    As ``validateProxyModeLinux`` in pkg/proxy/apis/config/validation/validation.go. Raises ``EngineError``.
    """
    if mode == Mode.IPVS and not configuration.feature_gates.get(_IPVS, True):
        log = f'KubeProxyConfiguration.ProxyMode: Invalid value: "{mode}": must be iptables, nftables or blank'
        raise EngineError(node, f"does not start: feature gate {_IPVS} is off", log)


def refuse_settings(engine: str, configuration: ProxyConfiguration) -> None:
    """Refuse what an embedded engine does not have: feature gates, or their values, and words for node ports.

    Raises:
        ScenarioError: with a line for each.
    """
    refused = [
        f"KubeProxyConfiguration.featureGates.{name}: {engine} "
        + (f"behaves as with {str(not value).lower()}" if name in _GATES else "does not know this gate")
        + "; remove it, or choose the real kube-proxy as engine"
        for name, value in configuration.feature_gates.items()
        if value not in _GATES.get(name, ())
    ]
    if configuration.needs_node_port_words:
        words = ", ".join([*configuration.node_port_words, *map(str, configuration.node_port_addresses)])
        refused.append(
            f"KubeProxyConfiguration.nodePortAddresses: {engine} does not serve [{words}], which kube-proxy 1.37 does; "
            "write networks, such as 127.0.0.0/8 in mode iptables, or choose the real kube-proxy as engine"
        )
    if refused:
        raise ScenarioError(refused)
