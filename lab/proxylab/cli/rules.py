"""``proxylab rules``: print a node's rules: those in the kernel, or those that the embedded engine would load."""

from typing import Any

import click

from proxylab.cli.case_option import choose_case
from proxylab.cli.netns import check_netns, complete_nodes
from proxylab.cli.which import SessionMaker, lab_options, the_lab, with_file
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, Node
from proxylab.engines.embedded.iptables.generations import shape_of
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.render import Renderer
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.names import EMBEDDED, mode_of, version_of
from proxylab.plan.assembly import lay_out
from proxylab.scenario.model import Scenario

__all__ = ["command"]


@click.command("rules", short_help="Print the rules of a node.")
@click.argument("words", nargs=-1, metavar="NODE|FILE", shell_complete=complete_nodes)
@click.option("--node", metavar="NAME", help="The node; by default the scenario's first.")
@lab_options
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    words: tuple[str, ...],
    node: str | None,
    name: str | None,
    engine: str,
    case_id: str | None,
    **of_engine: Any,
) -> None:
    """Print the rules of NODE in the standing lab, with their counters, from the kernel.

    With FILE, print the rules that the embedded engine would load into a node of that scenario, in the format of
    iptables-restore(8). This needs no privilege and no kernel.

    Example: proxylab rules scenarios/clusterip/from-a-pod.lab.yaml --node node-a
    """
    file, rest = with_file(words)
    if len(rest) > 1 or (file is not None and rest):
        raise click.UsageError("give NODE or FILE, not both; --node names a node of FILE")
    if file is not None:
        if engine not in EMBEDDED:
            known = ", ".join(EMBEDDED)
            raise click.UsageError(f"--engine: for FILE, choose {known}; `proxylab up` runs the others")
        _render(choose_case(file, case_id, mode_of(engine)), engine, node)
        return
    chosen = rest[0] if rest else node
    with the_lab(make_session, None, name, engine=engine, case_id=case_id, **of_engine) as lab:
        if chosen is not None:
            check_netns(lab.scenario, chosen, "NODE")
        click.echo(lab.rules_of(chosen or lab.scenario.nodes[0].name), nl=False)


def _render(scenario: Scenario, engine: str, node: str | None) -> None:
    layout = lay_out(scenario)
    nodes = {each.name: each for each in layout.objects if isinstance(each, Node)}
    chosen = next(iter(nodes)) if node is None else node
    if chosen not in nodes:
        raise click.UsageError(f"--node: there is no {chosen!r}; there are {', '.join(nodes)}")
    settings = ProxySettings.of(scenario.proxy or ProxyConfiguration(), scenario.network.pod_cidrs)
    view = ClusterView(
        services=layout.services,
        slices=tuple(each for each in layout.objects if isinstance(each, EndpointSlice)),
    )
    shape = shape_of(version_of(engine))
    for family in scenario.network.families:
        ruleset = Renderer(family, settings, shape).render(view, NodeFacts.of(chosen, nodes[chosen]))
        click.echo(f"# {family} on {chosen}")
        click.echo(restore(ruleset, KernelState()).text, nl=False)
