"""The engines of nodes through a scenario, with the patches of their configurations applied.

A patch applies to the configuration that the node's proxy has read before, as ``kubectl patch`` applies one to an
object. A node without one of its own has the file's.
"""

from collections.abc import Mapping
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.scenario.configuration import configuration_head, read_patched
from proxylab.scenario.document import Location, Problems
from proxylab.scenario.inventory import Inventory
from proxylab.scenario.node_engines import NodeEngine


class PatchedEngines(Struct, frozen=True):
    """The engines of nodes at one moment of a scenario.

    ``own`` are what it says of nodes at the beginning. ``written`` is the configuration of each node's proxy as a
    document, so that the next patch applies to it; a node without one has ``file``, the file's.
    """

    file: Location | None = None
    own: Mapping[str, NodeEngine] = {}
    written: Mapping[str, Location] = {}

    def patched(self, node: str, patch: Location, problems: Problems) -> tuple[Self, ProxyConfiguration | None]:
        """The engines after a patch of a node's configuration, and that configuration if it is well-formed."""
        base = self.written.get(node) or self.file or configuration_head()
        whole, settings = read_patched(base, patch, problems)
        return replace(self, written={**self.written, node: whole}), settings


def read_engines(
    engines: Mapping[str, NodeEngine],
    location: Location,
    file: Location | None,
    inventory: Inventory,
    problems: Problems,
) -> PatchedEngines:
    """Check ``spec.engines`` at ``location``, and apply its patches to the file's configuration."""
    now = PatchedEngines(file)
    own: dict[str, NodeEngine] = {}
    for node, each in engines.items():
        at = location[node]
        if node not in inventory.nodes:
            inventory.refuse(at.key, node, "a node", inventory.nodes, problems)
            continue
        own[node] = each
        if each.configuration:
            now, settings = now.patched(node, at["configuration"], problems)
            own[node] = replace(each, settings=settings)
        if not (each.engine or each.configuration):
            problems.add(at.spot, "says nothing", allowed="name an engine, or patch its configuration")
    return replace(now, own=own)
