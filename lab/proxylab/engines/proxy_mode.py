"""What one mode of the proxy is: all in which it differs from the others.

Owns ``ProxyMode``. Each mode is a package with a module ``mode``, whose ``MODE`` is the mode's, and ``modes`` is the
table of them. This module and the modules ``mode`` are pure; what touches a kernel stands in the package's module
``node``, which ``node_mode`` loads by name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.capability import CapabilityName
from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.engines.barrier import ADDRESSES, BARRIER
from proxylab.engines.embedded.mutation import Equivalent, MutantLines
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.engines.kubeproxy.log import ProgressLog
from proxylab.engines.loaded_rules import LoadedRule
from proxylab.engines.programmed import Programmed
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe, Stream
from proxylab.scenario.steps import Step

WITHOUT_INVALID_RULE: Final[Mapping[str, str]] = {
    "KubeProxyConfiguration.conntrack": "it has no rule against invalid packets, and the proxy only writes sysctls of "
    "it, which unit tests compare: no probe idles so long or sends a segment outside its window, as the dialogues in "
    "scenarios/bugs/test_74839_segment_out_of_window.py do"
}
"""What ``ProxyMode.unread`` says of every mode but iptables, where tcpBeLiberal leaves out the rule that drops them."""


class Lacks(Struct, frozen=True, kw_only=True):
    """What a mode lacks of what scenarios ask for, as clauses that say why to skip it; nothing by default.

    Attributes:
        of_scenario: what a whole scenario needs, as the end of ``a mode of the proxy …``. The proxy is the real
            kube-proxy or not, and a step changes its mode or not.
        of_server: the same of a query to a name server.
        of_probe: why a proxy of this mode, which the probe meets first, cannot show what the probe expects.
        of_stream: the same of what a step expects of a stream, each with its name in verdicts.
        of_step: the same of what a step expects at its end, where the proxies of these nodes run in this mode.
    """

    of_scenario: Callable[[Scenario, bool, bool], Iterable[str]] = lambda *_: ()
    of_server: Callable[[Scenario, IPAddress], Iterable[str]] = lambda *_: ()
    of_probe: Callable[[Assembly, Probe, ResolvedProbe], Iterable[str]] = lambda *_: ()
    of_stream: Callable[[Assembly, Step, Stream, ResolvedProbe], Iterable[tuple[str, str]]] = lambda *_: ()
    of_step: Callable[[Assembly, Step, Collection[str]], Iterable[tuple[str, str]]] = lambda *_: ()


class CommentedRule(Struct, frozen=True):
    """A rule of nftables that its comment tells from the others of its chain."""

    table: str
    chain: str
    comment: str


class KubeProxyTraits(Struct, frozen=True, kw_only=True):
    """How the real kube-proxy behaves in a mode, and what it needs.

    Attributes:
        flags: those by which its log shows what ``log`` reads.
        feature_gates: without which it does not start in a lab.
        log: makes the reader of its log, where rules alone do not show how far it has come.
        one_family: whether it serves the cluster's first family alone.
        one_by_one: whether it writes the rules of each Service by themselves.
        follows_zones: whether it syncs when the zone of its Node changes.
        always_full: whether every periodic sync is a full one.
        modules_before: the version since which it tries IPVS instead of looking for the kernel's modules.
        watches_endpoints: whether it watches Endpoints, not EndpointSlices.
        serves_loopback: whether it has a process that serves node ports at loopback addresses (``localhost``).
        rule_of_service_networks: the rule that it makes of the ServiceCIDRs, in full syncs alone.
    """

    flags: tuple[str, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    log: Callable[[], ProgressLog] | None = None
    one_family: bool = False
    one_by_one: bool = False
    follows_zones: bool = True
    always_full: bool = False
    modules_before: tuple[int, ...] = ()
    watches_endpoints: bool = False
    serves_loopback: bool = False
    rule_of_service_networks: CommentedRule | None = None


class ProxyMode(Struct, frozen=True, kw_only=True):
    """One mode.

    Attributes:
        word: its name, one of ``Mode``.
        package: that of the mode, whose module ``node`` does its work on a node's kernel.
        about: a line for each engine of the mode, by its name.
        settings: a proxy's settings, from its configuration and the pod networks.
        at_version: the settings of the embedded engine that behaves like a version, where versions differ.
        periods: of its sync loop.
        assume: the same settings on a node with these sysctls whose kernel has all that a proxy looks for; and a line
            that says what that is, or nothing.
        load: what the embedded engine, behaving like a version, would load into an empty node for one family.
        read: the rules of one family, for diagnoses.
        differences: a line for each rule that only one of two dumps has; none if they mean the same.
        by_family: the part of each family in a dump of a node; empty for a family without rules.
        holds: whether a dump of a node has the rules that a proxy always has; or, with false, none of them.
        without: a dump without the rules of the Service of that name, which alone has these addresses.
        loaded: each rule and element of one family's part of a dump that is the proxy's.
        mutants: the classes of the rules that ``load`` writes, and their mutants.
        equivalents: the mutants of rules that no packet can tell from the rule.
        alike: changes of objects that no packet can tell from the truth in this mode, each with its proof.
        unread: fields of objects and of the configuration from which this mode makes no rule, each with the proof that
            no packet of a probe can tell; named as mutants of objects are, without the positions of elements.
        ordered: lists of plain values whose order has a meaning in this mode, where others take them as sets.
        failures: the counter of failed syncs in kube-proxy's metrics, between its prefix and ``_total``.
        packet_counters: the counter of nfacct that each of these metrics shows.
        reads: the fields of ``ProxyConfiguration`` that it reads, of those that not every mode does; and
            ``service_cidrs`` if it reads the ServiceCIDR objects.
        keys: its own keys of ``KubeProxyConfiguration``, as the real kube-proxy reads them.
        feature_gates: those that concern this mode alone, with the values that its embedded engine behaves like.
        lacks: what it lacks of what scenarios ask for.
        removes: the modes whose rules a starting proxy removes (platformCleanup in cmd/kube-proxy/app), in order.
        counts_divide: whether what rules counted for several probes can be told apart (``verdict.shared_counts``).
        by_interfaces: whether each sync asks for the addresses of the node's interfaces, whatever its settings.
        sync_seconds: how long a sync of the real kube-proxy may take on a busy machine.
        needs: the capabilities without which no proxy of the mode can work.
        needs_of_kube_proxy: those that the real kube-proxy needs besides, such as a program that it runs.
        kube_proxy: how the real one behaves.
    """

    word: str
    package: str
    about: Mapping[str, str]
    settings: Callable[[ProxyConfiguration, tuple[IPNetwork, ...]], ProxySettings]
    at_version: Callable[[ProxySettings, tuple[int, ...]], ProxySettings] = lambda settings, _version: settings
    periods: Callable[[ProxyConfiguration], Periods]
    assume: Callable[[ProxySettings, Mapping[str, str], tuple[int, ...]], tuple[ProxySettings, str]] = (
        lambda settings, _sysctls, _version: (settings, "")
    )
    load: Callable[[ClusterView, NodeFacts, ProxySettings, Family, tuple[int, ...]], str]
    read: Callable[[str], Programmed]
    differences: Callable[[str, str], list[str]]
    by_family: Callable[[str, Sequence[Family]], dict[Family, str]]
    holds: Callable[[str, bool], bool]
    without: Callable[[str, str, Collection[str]], str]
    loaded: Callable[[str], Iterator[LoadedRule]]
    mutants: MutantLines
    equivalents: Sequence[Equivalent] = ()
    alike: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    ordered: frozenset[str] = frozenset()
    failures: str
    packet_counters: Mapping[str, str] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    keys: Callable[[ProxyConfiguration], Mapping[str, Any]] = lambda _proxy: {}
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    lacks: Lacks = Lacks()
    removes: tuple[Mode, ...] = ()
    counts_divide: bool = False
    by_interfaces: bool = False
    sync_seconds: float = 60.0
    needs: tuple[CapabilityName, ...] = ()
    needs_of_kube_proxy: tuple[CapabilityName, ...] = ()
    kube_proxy: KubeProxyTraits = KubeProxyTraits()

    def without_barrier(self, dump: str) -> str:
        """A node's dump without the rules of the barrier."""
        return self.without(dump, BARRIER, ADDRESSES) if BARRIER in dump else dump

    def proof_of(self, rule_class: str, change: str) -> str:
        """Why the mutant of a rule is equivalent; empty if nothing proves it."""
        rows = (each for each in self.equivalents if rule_class in each.classes and change in each.changes)
        return next((each.proof for each in rows), "")
