"""``proxylab rules``: what an engine would program into a node.

Owns: the verb's options.
Must not: run an engine, or touch the kernel: rendering is pure.
"""

from pathlib import Path

import click

from lab.assembly import lay_out
from lab.cli.case import CASE, FILE, one_case
from lab.cluster.configuration import ProxyConfiguration
from lab.cluster.objects import EndpointSlice, Node
from lab.engines.embedded.iptables.generations import shape_of
from lab.engines.embedded.iptables.held import Held
from lab.engines.embedded.iptables.render import Renderer
from lab.engines.embedded.iptables.restore import restore
from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView
from lab.engines.embedded.settings import ProxySettings
from lab.engines.names import EMBEDDED, mode_of, version_of

__all__ = ["command"]


@click.command("rules", short_help="Print the rules that an engine would program into a node.")
@FILE
@click.option("--node", metavar="NAME", help="The node; without it, the scenario's first.")
@click.option("--engine", type=click.Choice(EMBEDDED), default=EMBEDDED[0], show_default=True, help="The engine.")
@CASE
def command(*, file: Path, node: str | None, engine: str, case_id: str | None) -> None:
    """Print the rules that the engine would load into a node of the scenario FILE, as iptables-restore(8) reads them.

    No privilege is needed, and no kernel is asked.

    Example: proxylab rules scenarios/clusterip/from-a-pod.lab.yaml --node node-a
    """
    scenario = one_case(file, case_id, mode_of(engine))
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
        click.echo(restore(ruleset, Held()).text, nl=False)
