"""What a file says of its proxies.

Owns: ``Configured``, and the kind of document that it comes from.
Must not: read that document (``lab.scenario.configuration`` does, which only files that have one need to load).
"""

from lab.cluster.configuration import ProxyConfiguration
from lab.frozen import dataclass

__all__ = ["CONFIGURATION_KIND", "Configured"]

CONFIGURATION_KIND = "KubeProxyConfiguration"


@dataclass(frozen=True, slots=True)
class Configured:
    """What a file says of its proxies; ``ignored`` are the keys that are there and have no effect."""

    configuration: ProxyConfiguration | None = None
    ignored: tuple[str, ...] = ()
