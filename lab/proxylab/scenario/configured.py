"""What a file says of its proxies.

Owns: ``Configured``, and the kind of document that it comes from.
Must not: read that document (``proxylab.scenario.configuration`` does, which only files that have one need to load).
"""

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.frozen import dataclass

__all__ = ["CONFIGURATION_KIND", "Configured"]

CONFIGURATION_KIND = "KubeProxyConfiguration"


@dataclass(frozen=True, slots=True)
class Configured:
    """What a file says of its proxies; ``ignored`` are the keys that are there and have no effect."""

    configuration: ProxyConfiguration | None = None
    ignored: tuple[str, ...] = ()
