"""The proxy modes, as far as they are pure: the table of what each mode reads and writes as text.

``node_mode`` is the table of all that touches a kernel. A new mode is a package beside ``embedded/iptables`` and an
entry in both tables.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPNetwork
from proxylab.capability import CapabilityName
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.iptables import texts as iptables
from proxylab.engines.embedded.iptables.mutants import MUTANT_LINES as IPTABLES_MUTANTS
from proxylab.engines.embedded.ipvs import texts as ipvs
from proxylab.engines.embedded.ipvs.mutants import MUTANT_LINES as IPVS_MUTANTS
from proxylab.engines.embedded.mutation import MutantLines
from proxylab.engines.embedded.nftables import texts as nftables
from proxylab.engines.embedded.nftables.mutants import MUTANT_LINES as NFTABLES_MUTANTS
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.engines.embedded.userspace import texts as userspace
from proxylab.engines.programmed import Programmed


class Mode(Struct, frozen=True, kw_only=True):
    """One mode.

    Attributes:
        settings: a proxy's settings, from its configuration and the pod networks.
        periods: of its sync loop.
        assume: the same settings on a node with these sysctls whose kernel has all that a proxy looks for; and a line
            that says what that is, or nothing.
        load: what the embedded engine, behaving like a version, would load into an empty node for one family.
        read: the rules of one family, for diagnoses.
        differences: a line for each rule that only one of two dumps has; none if they mean the same.
        by_family: the part of each family in a dump of a node; empty for a family without rules.
        holds: whether a dump of a node has the rules that a proxy always has; or, with false, none of them.
        without: a dump without the rules of the Service of that name, which alone has these addresses.
        mutants: the classes of the rules that ``load`` writes, and their mutants.
        failures: the counter of failed syncs in kube-proxy's metrics, between its prefix and ``_total``.
        needs: the capabilities without which no proxy of the mode can work.
        needs_of_kube_proxy: those that the real kube-proxy needs besides, such as a program that it runs.
    """

    settings: Callable[[ProxyConfiguration, tuple[IPNetwork, ...]], ProxySettings]
    periods: Callable[[ProxyConfiguration], Periods]
    assume: Callable[[ProxySettings, Mapping[str, str], tuple[int, ...]], tuple[ProxySettings, str]]
    load: Callable[[ClusterView, NodeFacts, ProxySettings, Family, tuple[int, ...]], str]
    read: Callable[[str], Programmed]
    differences: Callable[[str, str], list[str]]
    by_family: Callable[[str, Sequence[Family]], dict[Family, str]]
    holds: Callable[[str, bool], bool]
    without: Callable[[str, str, Collection[str]], str]
    mutants: MutantLines
    failures: str
    needs: tuple[CapabilityName, ...] = ()
    needs_of_kube_proxy: tuple[CapabilityName, ...] = ()


MODES: Final[Mapping[str, Mode]] = {
    "iptables": Mode(
        settings=ProxySettings.of,
        periods=lambda proxy: Periods(least=proxy.min_sync_period, sync=proxy.sync_period),
        assume=iptables.assume,
        load=iptables.load,
        read=iptables.read,
        differences=iptables.differences,
        by_family=iptables.by_family,
        holds=iptables.holds,
        without=iptables.without,
        mutants=IPTABLES_MUTANTS,
        failures="iptables_restore_failures",
    ),
    "nftables": Mode(
        settings=nftables.settings,
        periods=lambda proxy: Periods(least=proxy.nftables.min_sync_period, sync=proxy.nftables.sync_period),
        assume=lambda settings, _sysctls, _version: (settings, ""),
        load=nftables.load,
        read=nftables.read,
        differences=nftables.differences,
        by_family=nftables.by_family,
        holds=nftables.holds,
        without=nftables.without,
        mutants=NFTABLES_MUTANTS,
        failures="nftables_sync_failures",
        needs=(CapabilityName.NFTABLES,),
    ),
    "ipvs": Mode(
        settings=ipvs.settings,
        periods=lambda proxy: Periods(least=proxy.ipvs.min_sync_period, sync=proxy.ipvs.sync_period),
        assume=ipvs.assume,
        load=ipvs.load,
        read=ipvs.read,
        differences=ipvs.differences,
        by_family=ipvs.by_family,
        holds=ipvs.holds,
        without=ipvs.without,
        mutants=IPVS_MUTANTS,
        failures="iptables_restore_failures",
        needs=(CapabilityName.IPVS, CapabilityName.DUMMY),
        needs_of_kube_proxy=(CapabilityName.IPSET,),
    ),
    "userspace": Mode(
        settings=userspace.settings,
        periods=lambda proxy: Periods(least=proxy.min_sync_period, sync=proxy.sync_period),
        assume=userspace.assume,
        load=userspace.load,
        read=userspace.read,
        differences=userspace.differences,
        by_family=iptables.by_family,
        holds=userspace.holds,
        without=iptables.without,
        mutants=IPTABLES_MUTANTS,
        failures="iptables_restore_failures",
    ),
}
