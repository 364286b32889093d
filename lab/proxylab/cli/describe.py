"""``proxylab describe``: one object of a lab with all that refers to it (see ``proxylab.report.description``)."""

from typing import Annotated

import click

from proxylab.cli.case_option import CaseId
from proxylab.cli.chosen_lab import KubernetesNamespace, LabName, lab_words
from proxylab.cli.get import complete_kinds, kind_of, the_cluster
from proxylab.cli.options import takes
from proxylab.cli.standard_streams import echo
from proxylab.errors import ExitCode
from proxylab.plan.model import Plan
from proxylab.report.description import describe, describe_host
from proxylab.report.listing import of_kind


@click.command("describe", short_help="Describe a node, pod, Service, workload or outside host of a lab.")
@takes
def command(
    *,
    words: Annotated[tuple[str, ...], lab_words("[FILE] KIND NAME", complete_kinds)],
    name: LabName,
    namespace: KubernetesNamespace,
    case_id: CaseId,
) -> ExitCode:
    """Describe a node, pod, service, workload or host of the standing lab: its fields, its network, its users.

    With FILE, describe the object as that scenario would start; no lab is built.

    Example: proxylab describe scenarios/clusterip/from-a-pod.lab.yaml service echo
    """
    with the_cluster(words, name, case_id, namespace) as cluster:
        rest = cluster.words
        if rest and rest[0] in ("host", "hosts"):
            echo("\n".join(_host(rest, [host.name for host in cluster.scenario.hosts], cluster.plan)))
            return ExitCode.OK
        kind, wanted = kind_of(rest, cluster.objects)
        found = of_kind(kind, cluster.chosen, wanted)
        if wanted is None or not found:
            known = ", ".join(each.name for each in of_kind(kind, cluster.chosen))
            raise click.UsageError(f"NAME: name one of {kind.plural}: {known or 'there are none'}")
        families = cluster.scenario.network.families
        pages = [describe(each, cluster.objects, cluster.plan, families) for each in found]
    echo("\n\n".join("\n".join(page) for page in pages))
    return ExitCode.OK


def _host(words: tuple[str, ...], hosts: list[str], plan: Plan) -> list[str]:
    if len(words) != 2 or words[1] not in hosts:
        raise click.UsageError(f"NAME: name one of hosts: {', '.join(hosts) or 'there are none'}")
    return describe_host(words[1], plan)
