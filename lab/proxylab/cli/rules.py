"""``proxylab rules``: print a node's rules: those in the kernel, or those that the embedded engine would load."""

from typing import Annotated

import click

from proxylab.cli.case_option import choose_case
from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.netns_argument import check_netns, complete_nodes
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.client.rendered_rules import rendered_rules
from proxylab.cluster.objects import Node
from proxylab.engines.engine_names import EMBEDDED, mode_of
from proxylab.plan.assembly import lay_out
from proxylab.scenario.model import Scenario


@click.command("rules", short_help="Print the rules of a node.")
@takes
def command(
    *,
    node: Annotated[str | None, option("--node", metavar="NAME", help="The node; by default the scenario's first.")],
    words: Annotated[tuple[str, ...], lab_words("NODE|FILE", complete_nodes, required=False)],
    options: LabOptions,
) -> None:
    """Print the rules of NODE in the standing lab, with their counters, from the kernel.

    With FILE, print what the embedded engine would load into a node of that scenario: for iptables-restore(8), or for
    `nft -f`. This needs no privilege and no kernel; a comment says what is assumed of the kernel. With the real
    kube-proxy as engine, run it in a temporary lab of FILE, and print what it has programmed.

    Example: proxylab rules scenarios/clusterip/from-a-pod.lab.yaml --node node-a
    """
    chosen = ChosenLab(words, options)
    if len(chosen.words) > 1 or (chosen.file is not None and chosen.words):
        raise click.UsageError("give NODE or FILE, not both; --node names a node of FILE")
    if chosen.file is not None and chosen.engine in EMBEDDED:
        _render(choose_case(chosen.file, chosen.case_id, mode_of(chosen.engine)), chosen.engine, node)
        return
    node = chosen.words[0] if chosen.words else node
    with chosen.opened() as lab:
        if node is not None:
            check_netns(lab.scenario, node, "NODE")
        echo(lab.rules_of(node or lab.scenario.nodes[0].name), nl=False)


def _render(scenario: Scenario, engine: str, node: str | None) -> None:
    layout = lay_out(scenario)
    nodes = [each.name for each in layout.objects if isinstance(each, Node)]
    chosen = nodes[0] if node is None else node
    if chosen not in nodes:
        raise click.UsageError(f"--node: there is no {chosen!r}; there are {', '.join(nodes)}")
    for each in rendered_rules(scenario, layout.plan, layout.objects, engine):
        if each.node == chosen:
            echo(f"# {each.family} on {chosen}{each.assumed and f'; assumed: {each.assumed}'}")
            echo(each.text, nl=False)
