"""``proxylab kubeconfig``: print a kubeconfig of a standing lab with a real control plane."""

import json

import click

from proxylab.cli.chosen_lab import LabName, standing
from proxylab.cli.options import takes
from proxylab.cli.standard_streams import echo
from proxylab.client.kubernetes import kubeconfig_of
from proxylab.errors import ExitCode


@click.command("kubeconfig", short_help="Print a kubeconfig of a lab with a real control plane.")
@takes
def command(*, name: LabName) -> ExitCode:
    """Print a kubeconfig of the standing lab, which `proxylab up --control-plane real` has started.

    It has a loopback port of this machine, the certificate of who has signed the API server's, and a token; all three
    end with the lab. Every program that reads a kubeconfig takes it from a file: kubectl, helm, client libraries. Write
    it there, and export KUBECONFIG with the file's path.

    Example: proxylab kubeconfig
    """
    with standing(name, or_file=False) as connection:
        echo(json.dumps(kubeconfig_of(connection), indent=2))
    return ExitCode.OK
