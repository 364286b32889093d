"""Destinations that end gracefully: they get no new connection, and go when they have none left.

kube-proxy does so for TCP alone (graceful_termination.go in pkg/proxy/ipvs). IPVS drops packets to a destination that
is gone (expire_nodest_conn), so that a UDP client's next packet finds another one.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from proxylab.addresses import IPAddress, Protocol
from proxylab.engines.embedded.ipvs.tables import ServerKey
from proxylab.evidence.ipvs import Destination, VirtualServer
from proxylab.kernel.netfilter.ipvs import Ipvs

__all__ = ["Ending"]

Pair = tuple[VirtualServer, Destination]

_Key = tuple[ServerKey, IPAddress, int]


class Ending:
    """The destinations of one node that end. Each call gets the node's IPVS."""

    def __init__(self) -> None:
        self._ending: dict[_Key, Pair] = {}

    def begin(self, ipvs: Ipvs, pairs: Iterable[Pair]) -> None:
        """Delete destinations, or set the weight of those with connections to 0."""
        left = _delete_idle(ipvs, [pair for pair in pairs if _key(pair) not in self._ending])
        ipvs.edit_destinations([(server, replace(each, weight=0)) for server, each in left])
        self._ending |= {_key(pair): pair for pair in left}

    def look(self, ipvs: Ipvs) -> None:
        """Delete those whose connections are gone."""
        if self._ending:
            self._ending = {_key(pair): pair for pair in _delete_idle(ipvs, list(self._ending.values()))}

    def take_back(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Those of the destinations that were ending. They are wanted again, and the kernel has them with weight 0."""
        return [pair for pair in pairs if self._ending.pop(_key(pair), None) is not None]

    def forget(self, servers: Iterable[VirtualServer]) -> None:
        """Forget the destinations of deleted virtual servers."""
        gone = {each.key for each in servers}
        self._ending = {key: pair for key, pair in self._ending.items() if key[0] not in gone}


def _delete_idle(ipvs: Ipvs, pairs: list[Pair]) -> list[Pair]:
    """Delete the destinations without connections, and return the others."""
    servers = {server.key: server for server, _ in pairs if server.protocol is Protocol.TCP}
    connections: Mapping[_Key, int] = {
        _key((server, each)): each.active + each.inactive
        for server in servers.values()
        for each in ipvs.destinations(server)
    }
    left = [pair for pair in pairs if connections.get(_key(pair))]
    ipvs.delete_destinations([pair for pair in pairs if pair not in left])
    return left


def _key(pair: Pair) -> _Key:
    server, destination = pair
    return server.key, destination.address, destination.port
