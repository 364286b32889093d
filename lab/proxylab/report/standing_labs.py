"""What a standing lab says of itself: when it begins to stand, and in a list of several.

Owns: these words.
Must not: ask a lab, or know what a verb does.
"""

import shlex
from collections.abc import Iterator, Sequence

from proxylab.cluster.objects import Service
from proxylab.evidence.words import endpoint
from proxylab.plan.assembly import Layout
from proxylab.plan.model import Role
from proxylab.report.columns import fitting, rows_of
from proxylab.scenario.model import Frontend, Probe, Scenario, ServiceTarget

__all__ = ["commands", "labs_table", "standing_lines"]


def standing_lines(
    layout: Layout, *, name: str, engine: str, left: str, width: int, alone: bool = True
) -> Iterator[str]:
    """What stands, and what to type next.

    Args:
        layout: of its scenario.
        name: what the lab is called.
        engine: as ``--engine`` has it.
        left: how long it stays.
        width: columns of the terminal.
        alone: no other lab stands, so no command need name it.
    """
    plan, scenario = layout.plan, layout.scenario
    yield f"{name} stands, with {engine}, for {left}"
    yield ""
    if scenario.case.id:
        yield f"  case      {scenario.case.id}"
    nodes = [each.name for each in plan.namespaces if each.role is Role.NODE]
    hosts = [each.name for each in plan.namespaces if each.role is Role.HOST]
    yield fitting("  nodes     ", nodes, width)
    yield fitting("  pods      ", [f"{pod.name} on {pod.node}" for pod in plan.pods], width)
    yield fitting("  hosts     ", hosts, width)
    yield fitting("  services  ", [_service(each) for each in layout.services], width)
    yield ""
    yield "try"
    yield from (f"  {each}" for each in commands(scenario, "" if alone else name))


def _service(service: Service) -> str:
    name = service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"
    where = [endpoint(service.cluster_ips[0], port.port) for port in service.ports[:1] if service.cluster_ips]
    return " ".join([name, *where])


def commands(scenario: Scenario, name: str = "", probe: Probe | None = None) -> Iterator[str]:
    """Commands that make sense in the lab of a scenario, those of a probe first.

    Args:
        scenario: of the lab.
        name: of the lab, where it may not be the only one that stands.
        probe: whom the commands shall be about; by default the scenario's first to a cluster IP.
    """
    which = f" --name {shlex.quote(name)}" if name else ""
    dials = probe or next((each for each in scenario.all_probes if _is_simple(each)), None)
    if dials is not None and _is_simple(dials):
        target = dials.target
        assert isinstance(target, ServiceTarget)  # noqa: S101 - as _is_simple says
        service = target.service if target.namespace == "default" else f"{target.namespace}/{target.service}"
        via = "" if target.via is Frontend.CLUSTER_IP else f" --via {target.via}"
        node = f" --node {target.node}" if target.node else ""
        port = f":{target.port}" if target.port is not None else ""
        sender = dials.source.name + (f":{dials.source.port}" if dials.source.port is not None else "")
        for verb in ("probe", "trace"):
            yield f"proxylab {verb} {sender} {service}{port}{via}{node}{which}"
    here = scenario.nodes[0].name
    yield f"proxylab get services{which}"
    yield f"proxylab rules {here}{which}"
    yield f"proxylab exec {here}{which} -- ip route"
    yield f"proxylab shell {dials.source.name if dials else here}{which}"
    yield f"proxylab down{' ' + shlex.quote(name) if name else ''}"


def _is_simple(probe: Probe) -> bool:
    """Whether a command line can say it: to a Service, by a front that has an address."""
    return isinstance(probe.target, ServiceTarget) and probe.target.via in (
        Frontend.CLUSTER_IP,
        Frontend.NODE_PORT,
        Frontend.EXTERNAL_IP,
        Frontend.LOAD_BALANCER_IP,
    )


def labs_table(labs: Sequence[tuple[str, str, str, str, str, str]]) -> list[str]:
    """The standing labs: name, engine, age, time that is left, state and file of each."""
    if not labs:
        return ["no lab is running; start one with `proxylab up FILE`"]
    return rows_of(("name", "engine", "age", "left", "state", "file"), labs)
