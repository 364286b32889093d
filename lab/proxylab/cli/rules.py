"""``proxylab rules``: print a node's rules: those in the kernel, or those that the embedded engine would load."""

import click

from proxylab.cli.case_option import choose_case
from proxylab.cli.chosen_lab import ChosenLab, in_lab
from proxylab.cli.netns_argument import check_netns, complete_nodes
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, Node, ServiceCIDR
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import refuse_gates
from proxylab.engines.engine_names import EMBEDDED, mode_of, version_of
from proxylab.engines.modes import MODES
from proxylab.plan.assembly import lay_out
from proxylab.scenario.model import Scenario

__all__ = ["command"]


@click.command("rules", short_help="Print the rules of a node.")
@click.option("--node", metavar="NAME", help="The node; by default the scenario's first.")
@in_lab("NODE|FILE", complete_nodes, required=False)
def command(chosen: ChosenLab, /, *, node: str | None) -> None:
    """Print the rules of NODE in the standing lab, with their counters, from the kernel.

    With FILE, print what the embedded engine would load into a node of that scenario: for iptables-restore(8), or for
    `nft -f`. This needs no privilege and no kernel; a comment says what is assumed of the kernel. With the real
    kube-proxy as engine, run it in a temporary lab of FILE, and print what it has programmed.

    Example: proxylab rules scenarios/clusterip/from-a-pod.lab.yaml --node node-a
    """
    if len(chosen.words) > 1 or (chosen.file is not None and chosen.words):
        raise click.UsageError("give NODE or FILE, not both; --node names a node of FILE")
    if chosen.file is not None and chosen.engine in EMBEDDED:
        _render(choose_case(chosen.file, chosen.case_id, mode_of(chosen.engine)), chosen.engine, node)
        return
    node = chosen.words[0] if chosen.words else node
    with chosen.opened() as lab:
        if node is not None:
            check_netns(lab.scenario, node, "NODE")
        click.echo(lab.rules_of(node or lab.scenario.nodes[0].name), nl=False)


def _render(scenario: Scenario, engine: str, node: str | None) -> None:
    layout = lay_out(scenario)
    nodes = {each.name: each for each in layout.objects if isinstance(each, Node)}
    chosen = next(iter(nodes)) if node is None else node
    if chosen not in nodes:
        raise click.UsageError(f"--node: there is no {chosen!r}; there are {', '.join(nodes)}")
    mode, configuration = MODES[mode_of(engine)], scenario.proxy or ProxyConfiguration()
    refuse_gates(engine, configuration)
    settings = mode.settings(configuration, scenario.network.pod_cidrs)
    view = ClusterView(
        services=layout.services,
        slices=tuple(each for each in layout.objects if isinstance(each, EndpointSlice)),
        service_cidrs=tuple(cidr for each in layout.objects if isinstance(each, ServiceCIDR) for cidr in each.cidrs),
    )
    version, sysctls = version_of(engine), {each.name: each.value for each in layout.plan.namespace(chosen).sysctls}
    settings, assumed = mode.assume(settings, sysctls, version)
    facts = NodeFacts.of(chosen, nodes[chosen], nodes[chosen].addresses, settings.node_address)
    for family in scenario.network.families:
        click.echo(f"# {family} on {chosen}{assumed and f'; assumed: {assumed}'}")
        click.echo(mode.load(view, facts, settings, family, version), nl=False)
