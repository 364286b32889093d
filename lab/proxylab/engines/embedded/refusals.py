"""Settings that an embedded engine refuses, since it does not behave as they say."""

from typing import Final

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.modes import MODES
from proxylab.errors import ScenarioError

_GATES: Final = {
    "AllowServiceExternalIPs": True,
    "PreferSameTrafficDistribution": True,
    "ServiceTrafficDistribution": True,
    **{name: value for mode in MODES.values() for name, value in mode.feature_gates.items()},
}
"""kube-proxy's feature gates that change rules, each with the value that embedded engines behave like."""


def refuse_settings(engine: str, configuration: ProxyConfiguration) -> None:
    """Refuse what an embedded engine does not have: feature gates, or their values, and words for node ports.

    Raises:
        ScenarioError: with a line for each.
    """
    refused = [
        f"KubeProxyConfiguration.featureGates.{name}: {engine} "
        + (f"behaves as with {str(_GATES[name]).lower()}" if name in _GATES else "does not know this gate")
        + "; remove it, or choose the real kube-proxy as engine"
        for name, value in configuration.feature_gates.items()
        if _GATES.get(name) is not value
    ]
    if configuration.needs_node_port_words:
        words = ", ".join([*configuration.node_port_words, *map(str, configuration.node_port_addresses)])
        refused.append(
            f"KubeProxyConfiguration.nodePortAddresses: {engine} does not serve [{words}], which kube-proxy 1.37 does; "
            "write networks, such as 127.0.0.0/8 in mode iptables, or choose the real kube-proxy as engine"
        )
    if refused:
        raise ScenarioError(refused)
