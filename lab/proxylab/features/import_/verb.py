"""``proxylab import``: write a scenario from kubectl's output of a live cluster."""

import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final

import click

from proxylab.addresses import IPNetwork
from proxylab.cli.file_arguments import write_new
from proxylab.cli.input_files import read_input
from proxylab.cli.options import argument, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import terminal_width
from proxylab.errors import ExitCode
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import COMMAND, dump_files, read_kubectl_output
from proxylab.plan.assembly import check_every_case
from proxylab.scenario.document import Problems
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.source import decode
from proxylab.text import wrapped

_STDIN: Final = "-"


def _networks(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[IPNetwork, ...]:
    try:
        networks = tuple(ip_network(each) for each in values)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write a network such as 10.96.0.0/12", ctx, param) from None
    if len({each.version for each in networks}) < len(networks):
        raise click.BadParameter("these are two of one family; name one network of each family", ctx, param)
    return networks


@click.command("import", short_help="Write a scenario from kubectl's output of a live cluster.")
@takes
def command(
    *,
    files: Annotated[
        tuple[Path, ...],
        argument(nargs=-1, metavar="[FILE…]", type=click.Path(path_type=Path, allow_dash=True)),
    ],
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="FILE", type=OutputFile(new=True), help="Write to this new file."),
    ],
    name: Annotated[
        str, option("--name", metavar="NAME", default="imported", show_default=True, help="The scenario's name.")
    ],
    service_networks: Annotated[
        tuple[IPNetwork, ...],
        option(
            "--service-cidr",
            metavar="NETWORK",
            multiple=True,
            callback=_networks,
            help="The cluster's ServiceCIDR, one of each family. The default is that of ServiceCIDR objects, or one"
            " around the cluster IPs.",
        ),
    ],
) -> ExitCode:
    """Write a scenario with the Services, endpoints and node addresses of a live cluster.

    FILE… or standard input is the output of `kubectl get svc,endpointslices,pods,nodes -A -o yaml` (or json). Each
    frontend that a pod in the cluster, or a machine outside, can dial gets a probe, and Kubernetes'
    promises say what must become of it. The head of the scenario and standard error list what the import left out. A
    second FILE, the output of `kubectl -n kube-system get configmap kube-proxy -o yaml`, has the proxy's configuration.
    A FILE may be what `kubectl cluster-info dump -A` prints, or a folder that it or must-gather wrote.

    Example: proxylab import cluster.yaml -o mine.lab.yaml
    """
    texts = ((str(each), _text(each)) for file in files or (Path(_STDIN),) for each in dump_files(file))
    imported = import_cluster(read_kubectl_output(texts), name, service_networks)
    target, too_large = str(output or "standard output"), Problems()
    decode(imported.text.encode(), target, too_large)
    too_large.raise_any()
    if output is None:
        echo(imported.text, nl=False)
    else:
        write_new(output, imported.text)
    echo("left out:", err=True)
    for line in imported.left:
        echo("\n".join(wrapped(line, "  ", "    ", terminal_width())), err=True)
    # As `proxylab check` does: a cluster may hold objects that a lab cannot run.
    check_every_case([parse_scenario(imported.text, target)])
    if output is not None:
        probes = f"{imported.probes} {'probe' if imported.probes == 1 else 'probes'}"
        echo(f"{output}: {probes}; try `proxylab run {output}`", err=True)
        if imported.engine:
            echo(f"  with the cluster's own proxy: --engine {imported.engine}", err=True)
    return ExitCode.OK


def _text(file: Path) -> str:
    if str(file) == _STDIN:
        if sys.stdin.isatty():
            raise click.UsageError(f"standard input is a terminal; try `{COMMAND} | proxylab import`, or name a file")
        data = sys.stdin.buffer.read()
    else:
        return read_input(file, f"a file with the output of `{COMMAND}`")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"standard input is not UTF-8 text; give it the output of `{COMMAND}`") from None
