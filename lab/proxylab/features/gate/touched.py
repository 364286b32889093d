"""What a change of kubernetes can alter in a proxy: which modes, and which themes of the catalogue.

The table follows the folders of kube-proxy's sources. A file that no row names alters no proxy. A file of ``pkg/proxy``
that no other row names may alter everything.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from proxylab.cluster.configuration import Mode

BOTH: Final = (Mode.IPTABLES, Mode.NFTABLES)
"""The modes that the gate runs on."""


class _Area(Struct, frozen=True):
    """A folder or file of kubernetes; without themes it concerns the whole catalogue."""

    path: str
    modes: tuple[Mode, ...] = BOTH
    themes: tuple[str, ...] = ()


_SERVICES: Final = ("affinity", "clusterip", "externalip", "hairpin", "loadbalancer", "nodeport", "rejections", "steps")
_ENDPOINTS: Final = ("clusterip", "loadbalancer", "manifests", "nodeport", "rejections", "steps", "terminating")
_SETTINGS: Final = ("conntrack", "detect-local", "leftovers", "masquerade", "nodeport", "steps")

_AREAS: Final = (
    _Area("pkg/proxy/iptables/", (Mode.IPTABLES,)),
    _Area("pkg/util/iptables/", (Mode.IPTABLES,)),
    _Area("vendor/sigs.k8s.io/iptables-wrappers/", (Mode.IPTABLES,)),
    _Area("pkg/proxy/nftables/", (Mode.NFTABLES,)),
    _Area("vendor/sigs.k8s.io/knftables/", (Mode.NFTABLES,)),
    _Area("pkg/proxy/ipvs/", (Mode.IPVS,)),
    _Area("pkg/proxy/winkernel/", ()),
    _Area("pkg/proxy/kubemark/", ()),
    _Area("pkg/proxy/conntrack/", themes=("bugs", "conntrack", "steps", "terminating")),
    _Area("vendor/github.com/vishvananda/netlink/", themes=("bugs", "conntrack", "steps", "terminating")),
    _Area("pkg/proxy/healthcheck/", themes=("health", "loadbalancer", "steps")),
    _Area("pkg/proxy/metrics/", themes=("health", "steps")),
    _Area("pkg/proxy/topology.go", themes=("clusterip", "loadbalancer", "nodeport", "terminating", "topology")),
    _Area("pkg/proxy/endpoint", themes=(*_ENDPOINTS, "topology")),
    _Area("pkg/proxy/serviceport.go", themes=_SERVICES),
    _Area("pkg/proxy/servicechangetracker.go", themes=_SERVICES),
    _Area("pkg/proxy/node", themes=("nodeport", "steps", "topology")),
    _Area("pkg/proxy/config/", themes=("steps", "topology", "terminating")),
    _Area("pkg/proxy/runner/", themes=("steps",)),
    _Area("pkg/proxy/apis/", themes=_SETTINGS),
    _Area("cmd/kube-proxy/", themes=_SETTINGS),
    _Area("staging/src/k8s.io/kube-proxy/", themes=_SETTINGS),
    _Area("pkg/proxy/"),
    _Area("go.mod"),
)


class Touched(Struct, frozen=True):
    """What a change can alter.

    Attributes:
        files: those that can alter a proxy.
        themes: of each mode, the themes that it concerns; none means all of them.
    """

    files: tuple[str, ...]
    themes: dict[str, frozenset[str]]

    def concerns(self, mode: str, theme: str) -> bool:
        """Whether the change can alter what a mode does in the scenarios of a theme."""
        return mode in self.themes and (not self.themes[mode] or theme in self.themes[mode])


def touched(files: Iterable[str]) -> Touched:
    """What a change of these files, by their paths in kubernetes, can alter."""
    known: dict[str, frozenset[str]] = {}
    found = []
    for file in files:
        if file.endswith(("_test.go", ".md")) or "/testing/" in file:
            continue
        area = next((each for each in _AREAS if file.startswith(each.path)), None)
        if area is None or not area.modes:
            continue
        found.append(file)
        for mode in area.modes:
            everything = not area.themes or known.get(mode) == frozenset()
            known[mode] = frozenset() if everything else known.get(mode, frozenset()).union(area.themes)
    return Touched(tuple(found), known)
