"""The Service by which a lab sees that a proxy has caught up.

Theory of operation. A proxy watches Services and EndpointSlices in two streams, and neither stream marks the end of a
batch of changes. So after a batch the lab renames the only port of the barrier's Service and slices. A proxy writes
rules for the new name only when both streams have brought it, and then it has everything that came earlier in either.
The name stands in the rules: in comments of iptables rules, in names of nftables chains; in modes whose rules have no
names, in kube-proxy's log (``kubeproxy.log``). Names count up, because a slow proxy may skip one.

Every lab has the barrier, in a namespace of its own, so that all engines have the same rules. Its addresses are
reserved ones that no network has.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import (
    HEADLESS_LABEL,
    Endpoint,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    KubeObject,
    Namespace,
    Service,
    ServicePort,
)
from proxylab.cluster.slices import endpoints_of
from proxylab.cluster.store import Event, Store

NAMESPACE: Final = "proxylab"
NAME: Final = "barrier"
BARRIER: Final = f"{NAMESPACE}/{NAME}"
"""The barrier's name in rules."""

_PORT: Final = 1
_MOST_KEPT: Final = 1000

# In the comment of an iptables rule, and in the name of an nftables chain.
_REACHED: Final = re.compile(rf"{BARRIER}(?::|/tcp/)b([0-9]{{6,}})".encode())

# RFC 7600 reserves 192.0.0.8 as a dummy address, RFC 6666 discards all of 100::/64.
_FRONTEND: Final[dict[Family, IPAddress]] = {Family.IPV4: ip_address("192.0.0.8"), Family.IPV6: ip_address("100::8")}
_BACKEND: Final[dict[Family, IPAddress]] = {Family.IPV4: ip_address("192.0.0.9"), Family.IPV6: ip_address("100::9")}

ADDRESSES: Final = frozenset(map(str, (*_FRONTEND.values(), *_BACKEND.values())))


class Barrier:
    """The barrier of one lab. ``newest`` is the revision of the latest change that affects rules.

    Args:
        store: the cluster, to which the barrier is added.
        mirror: whether the proxies watch Endpoints. Each batch then ends with those of its EndpointSlices.
    """

    def __init__(self, store: Store, families: Sequence[Family], *, mirror: bool = False) -> None:
        self._store = store
        self._mirror = mirror
        self._families = tuple(families)
        self._number = 0
        self._revision = 0
        self._advances: deque[tuple[int, int]] = deque(maxlen=_MOST_KEPT)
        self.newest = store.revision
        store.subscribe(self._note)
        self._advance()

    def revision_of(self, number: int) -> int:
        """The revision that rules with that number reflect; 0 where the number is too old to be remembered."""
        return next((revision for advanced, revision in self._advances if advanced == number), 0)

    def number_for(self, revision: int) -> int:
        """The number that shows that a proxy has caught up with ``revision``; advances the barrier only if needed."""
        if self._revision <= revision:
            self._advance()
        return self._number

    def advance_anyway(self) -> int:
        """Advance the barrier even if no proxy lags behind, and return its number."""
        self._advance()
        return self._number

    def _note(self, event: Event) -> None:
        if isinstance(event.object, Service | EndpointSlice) and not is_barrier(event.object):
            self.newest = event.revision

    def _advance(self) -> None:
        self._number += 1
        self._advances.append((self._number, self.newest))
        for thing in _objects(f"b{self._number:06}", self._families):
            self._revision = self._store.apply(thing)
        if self._mirror:
            self._mirror_slices()

    def _mirror_slices(self) -> None:
        """Make the Endpoints those of the slices, and the barrier's own the last that change."""
        slices = _of_services(self._store.list(EndpointSlice))
        wanted = {each.key: each for each in endpoints_of(slices, self._families[0])}
        for known in self._store.list(Endpoints):
            if known.key not in wanted:
                self._store.delete(known.key)
        for each in sorted(wanted.values(), key=is_barrier):
            self._store.apply(each)


def _objects(port: str, families: Sequence[Family]) -> Iterator[KubeObject]:
    yield Service(
        namespace=NAMESPACE,
        name=NAME,
        ports=(ServicePort(name=port, port=_PORT, target_port=_PORT),),
        cluster_ips=tuple(_FRONTEND[family] for family in families),
        ip_families=tuple(families),
        ip_family_policy="SingleStack" if len(families) == 1 else "RequireDualStack",
    )
    for family in families:
        yield EndpointSlice(
            namespace=NAMESPACE,
            name=f"{NAME}-{family.lower()}",
            service=NAME,
            address_type=family,
            ports=(EndpointPort(name=port, port=_PORT),),
            endpoints=(Endpoint(addresses=(_BACKEND[family],)),),
        )


def _of_services(slices: Iterable[EndpointSlice]) -> Iterator[EndpointSlice]:
    """Those of Services that proxies serve: they leave out Endpoints of headless ones, too."""
    return (each for each in slices if HEADLESS_LABEL not in each.labels)


def is_barrier(thing: KubeObject) -> bool:
    """Whether an object is one of the lab's own, such as those of the barrier."""
    return NAMESPACE in (thing.key.namespace, thing.name if isinstance(thing, Namespace) else "")


def highest_number_in(rules: Iterable[bytes]) -> int:
    """The highest barrier number in rules or names of chains; 0 if there is none.

    Mode nftables keeps unused chains for a while, so several numbers may be there.
    """
    return max((int(found[1]) for each in rules for found in _REACHED.finditer(each)), default=0)


def family_of(end: str) -> Family | None:
    """The family of the barrier's frontend or backend in a line of a log, as in ``[100::8]:1/TCP``."""
    host = end.rpartition(":")[0].strip("[]")
    return next((family for family in Family if host in (str(_FRONTEND[family]), str(_BACKEND[family]))), None)
