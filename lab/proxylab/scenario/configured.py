"""What a file says of its proxies.

Owns: ``Configured``, and the kind of document that it comes from.
Must not: read that document (``proxylab.scenario.configuration`` does, which only files that have one need to load).
"""

from msgspec import Struct

from proxylab.cluster.configuration import ProxyConfiguration

__all__ = ["CONFIGURATION_KIND", "Configured"]

CONFIGURATION_KIND = "KubeProxyConfiguration"


class Configured(Struct, frozen=True):
    """What a file says of its proxies; ``ignored`` are the keys that are there and have no effect."""

    configuration: ProxyConfiguration | None = None
    ignored: tuple[str, ...] = ()
