"""What a change of kubernetes can alter in a proxy: which modes, and which themes of the catalogue.

The table follows the folders of kube-proxy's sources, and of what it is linked with. A file that no row names alters no
proxy. A file of ``pkg/proxy`` that no other row names may alter everything, and so may one that names feature gates.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from proxylab.cluster.configuration import Mode

BOTH: Final = (Mode.IPTABLES, Mode.NFTABLES)
"""The modes that the gate runs on."""


class Area(Struct, frozen=True):
    """A folder or file of kubernetes; without themes it concerns the whole catalogue."""

    path: str
    modes: tuple[Mode, ...] = BOTH
    themes: tuple[str, ...] = ()


_SERVICES: Final = ("affinity", "clusterip", "externalip", "hairpin", "loadbalancer", "nodeport", "rejections", "steps")
_ENDPOINTS: Final = ("clusterip", "loadbalancer", "manifests", "nodeport", "rejections", "steps", "terminating")
_SETTINGS: Final = ("conntrack", "detect-local", "leftovers", "masquerade", "nodeport", "steps")

AREAS: Final = (
    Area("pkg/proxy/iptables/", (Mode.IPTABLES,)),
    Area("pkg/util/iptables/", (Mode.IPTABLES,)),
    Area("vendor/sigs.k8s.io/iptables-wrappers/", (Mode.IPTABLES,)),
    Area("pkg/proxy/nftables/", (Mode.NFTABLES,)),
    Area("vendor/sigs.k8s.io/knftables/", (Mode.NFTABLES,)),
    Area("vendor/github.com/google/nftables/", (Mode.NFTABLES,)),  # by which knftables lists
    Area("pkg/proxy/ipvs/", (Mode.IPVS,)),
    Area("pkg/proxy/winkernel/", ()),
    Area("pkg/proxy/kubemark/", ()),
    Area("pkg/proxy/conntrack/", themes=("bugs", "conntrack", "steps", "terminating")),
    Area("vendor/github.com/vishvananda/netlink/", themes=("bugs", "conntrack", "steps", "terminating")),
    Area("pkg/proxy/healthcheck/", themes=("health", "loadbalancer", "steps")),
    Area("pkg/proxy/metrics/", themes=("health", "steps")),
    Area("pkg/proxy/topology.go", themes=("clusterip", "loadbalancer", "nodeport", "terminating", "topology")),
    Area("pkg/proxy/endpoint", themes=(*_ENDPOINTS, "topology")),
    Area("pkg/proxy/serviceport.go", themes=_SERVICES),
    Area("pkg/proxy/servicechangetracker.go", themes=_SERVICES),
    Area("pkg/proxy/node", themes=("nodeport", "steps", "topology")),
    Area("pkg/proxy/config/", themes=("steps", "topology", "terminating")),
    Area("pkg/proxy/runner/", themes=("steps",)),
    Area("pkg/proxy/apis/", themes=_SETTINGS),
    Area("cmd/kube-proxy/", themes=_SETTINGS),
    Area("staging/src/k8s.io/kube-proxy/", themes=_SETTINGS),
    Area("pkg/proxy/"),
    Area("pkg/features/kube_features.go"),  # feature gates, and whether they are on by default
    Area("pkg/util/node/", themes=_SETTINGS),
    Area("pkg/util/async/", themes=("steps",)),  # the runner until 1.33
    Area("pkg/api/v1/service/", themes=_SERVICES),
    Area("pkg/apis/core/v1/helper/", themes=_SERVICES),
    Area("staging/src/k8s.io/client-go/", themes=("steps",)),
    Area("staging/src/k8s.io/component-helpers/node/", themes=_SETTINGS),
    Area("go.mod"),
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
        area = next((each for each in AREAS if file.startswith(each.path)), None)
        if area is None or not area.modes:
            continue
        found.append(file)
        for mode in area.modes:
            everything = not area.themes or known.get(mode) == frozenset()
            known[mode] = frozenset() if everything else known.get(mode, frozenset()).union(area.themes)
    return Touched(tuple(found), known)
