"""The real programs that a scenario's pods run, found before its lab begins."""

from collections.abc import Mapping

from msgspec.structs import replace

from proxylab.binaries.coredns import coredns_sources, find_coredns
from proxylab.scenario.dns import NameServer
from proxylab.scenario.model import Scenario

__all__ = ["with_programs"]


def with_programs(scenario: Scenario, name_server: str) -> tuple[Scenario, Mapping[str, str]]:
    """The scenario with its name server chosen, and the path of each program that it needs, by name.

    Args:
        scenario: without a matrix, or a case of one.
        name_server: the value of ``--name-server``, or empty.

    Raises:
        CapabilityError: this machine lacks a program.
    """
    chosen = NameServer.COREDNS if name_server not in ("", NameServer.EMBEDDED) else NameServer.EMBEDDED
    if not scenario.has_names or (scenario.name_server.server or chosen) is NameServer.EMBEDDED:
        return scenario, {}
    named = name_server if chosen is NameServer.COREDNS else ""
    found = find_coredns(named, coredns_sources().cache)
    served = replace(scenario, name_server=replace(scenario.name_server, server=NameServer.COREDNS))
    return served, {NameServer.COREDNS.value: str(found.path)}
