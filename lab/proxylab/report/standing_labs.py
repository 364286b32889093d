"""The words for standing labs: the output of ``proxylab up``, and the table of ``proxylab ps``."""

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxylab.addresses import Transport
from proxylab.binary_identity import BinaryIdentity
from proxylab.cluster.objects import Service
from proxylab.evidence.words import endpoint
from proxylab.plan.assembly import LabLayout
from proxylab.plan.model import Role
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe, ServiceTarget
from proxylab.scenario.targets import FRONTENDS_OF_PORTS
from proxylab.scenario.words import Frontend
from proxylab.text import kubectl_table, names_that_fit, wrapped


def standing_lines(
    layout: LabLayout,
    *,
    name: str,
    engine: str,
    left: str,
    width: int,
    alone: bool = True,
    binary: BinaryIdentity | None = None,
) -> Iterator[str]:
    """What runs in a new lab, and which commands to type next.

    Commands name the lab by ``--lab`` unless it runs ``alone``. ``left`` is its remaining lifetime. ``binary`` runs as
    the proxy, unless the engine is embedded.
    """
    plan, scenario = layout.plan, layout.scenario
    yield f"{name} is running, with {engine}, for {left}"
    if binary is not None:
        yield from wrapped(str(binary), "  ", width=width)
    yield ""
    if scenario.case.id:
        yield f"  case      {scenario.case.id}"
    nodes = [each.name for each in plan.namespaces if each.role is Role.NODE]
    hosts = [each.name for each in plan.namespaces if each.role is Role.HOST]
    yield names_that_fit("  nodes     ", nodes, width)
    yield names_that_fit("  pods      ", [f"{pod.name} on {pod.node}" for pod in plan.pods], width)
    yield names_that_fit("  hosts     ", hosts, width)
    yield names_that_fit("  services  ", [_service(each) for each in layout.services], width)
    yield ""
    yield "try"
    yield from (f"  {each}" for each in commands(scenario, "" if alone else name))


def _service(service: Service) -> str:
    name = service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"
    where = [endpoint(service.cluster_ips[0], port.port) for port in service.ports[:1] if service.cluster_ips]
    return " ".join([name, *where])


def commands(scenario: Scenario, name: str = "", probe: Probe | None = None) -> Iterator[str]:
    """Commands to try in the lab of a scenario, beginning with a probe.

    ``name`` is empty for the only standing lab. ``probe`` is the one to repeat, by default the first to a Service.
    """
    which = f" --lab {shlex.quote(name)}" if name else ""
    dials = probe or next((each for each in scenario.all_probes if _is_simple(each)), None)
    if dials is not None and _is_simple(dials):
        target = dials.target
        assert isinstance(target, ServiceTarget)  # noqa: S101 - _is_simple ensures it
        service = target.service if target.namespace == "default" else f"{target.namespace}/{target.service}"
        via = "" if target.via is Frontend.CLUSTER_IP else f" --via {target.via}"
        node = f" --node {target.node}" if target.node else ""
        port = f":{target.port}" if target.port is not None else ""
        sender = dials.source.name + (f":{dials.source.port}" if dials.source.port is not None else "")
        sent = {Transport.UDP: " --udp", Transport.ICMP: " --icmp"}.get(dials.send.protocol or Transport.TCP, "")
        for verb in ("probe", "trace"):
            yield f"proxylab {verb} {sender} {service}{port}{via}{node}{sent}{which}"
    here = scenario.nodes[0].name
    yield f"proxylab get services{which}"
    yield f"proxylab rules {here}{which}"
    yield f"proxylab exec {here}{which} -- ip route"
    yield f"proxylab shell {dials.source.name if dials else here}{which}"
    yield f"proxylab down{' ' + shlex.quote(name) if name else ''}"


def _is_simple(probe: Probe) -> bool:
    """Whether a command line can express the probe: it dials a frontend of a Service that has an address."""
    return isinstance(probe.target, ServiceTarget) and probe.target.via in FRONTENDS_OF_PORTS


class LabRow(NamedTuple):
    """A standing lab in words."""

    name: str
    engine: str
    age: str
    left: str
    state: str
    file: str


def labs_table(labs: Sequence[LabRow]) -> list[str]:
    """A table of the standing labs."""
    if not labs:
        return ["no lab is running; start one with `proxylab up FILE`"]
    return kubectl_table(LabRow._fields, labs)
