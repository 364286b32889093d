"""The checks of ``conntrack``, in probes and in steps."""

from proxylab.scenario.document import Location
from proxylab.scenario.inventory import Inventory
from proxylab.scenario.problems import Problems
from proxylab.scenario.schema.expect import ConntrackShape, EntriesShape
from proxylab.scenario.schema.syntax import is_address

__all__ = ["check_conntrack"]


def check_conntrack(shape: ConntrackShape, location: Location, inventory: Inventory, problems: Problems) -> None:
    """Note unknown names in an expectation of connection tracking, and one that expects nothing."""
    if shape.node is not None and shape.node not in inventory.nodes:
        inventory.refuse(location["node"].spot, shape.node, "a node", inventory.nodes, problems)
    if shape.some is None and shape.none is None:
        problems.add(location.spot, "expects nothing", allowed="needed: some, none, or both")
    if shape.some is not None and shape.some == shape.none:
        problems.add(
            location["none"].spot, "contradicts some, which needs the same entries", allowed="remove one of the two"
        )
    for key, entries in (("some", shape.some), ("none", shape.none)):
        if entries is not None:
            _check_entries(entries, location[key], inventory, problems)


def _check_entries(entries: EntriesShape, location: Location, inventory: Inventory, problems: Problems) -> None:
    for key, name in (("replyFrom", entries.reply_from), ("originalFrom", entries.original_from)):
        if name is not None and not is_address(name) and name not in inventory.senders:
            inventory.refuse(location[key].spot, name, "a node, pod or host", inventory.senders, problems)
