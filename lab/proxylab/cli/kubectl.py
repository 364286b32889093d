"""``proxylab kubectl``: run the kubectl of a lab's own control plane against it."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import click

from proxylab.binaries.control_plane import REAL, control_plane_sources, find_control_plane
from proxylab.cli.chosen_lab import LabName, standing
from proxylab.cli.options import argument, takes
from proxylab.client.kubernetes import kubeconfig_of


@click.command(
    "kubectl",
    short_help="Run kubectl in a lab with a real control plane.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@takes
def command(
    *,
    name: LabName,
    words: Annotated[tuple[str, ...], argument(nargs=-1, type=click.UNPROCESSED, metavar="-- ARGUMENT…")],
) -> NoReturn:
    """Run kubectl with these arguments against the standing lab, and exit with its status.

    It is the kubectl that `proxylab engines --obtain control-plane` has built. Your own works as well, with
    `proxylab kubeconfig`.

    Example: proxylab kubectl -- get services --all-namespaces
    """
    with standing(name, or_file=False) as connection:
        document = kubeconfig_of(connection)
    become_kubectl(document, words)


def become_kubectl(kubeconfig: Mapping[str, Any], words: Sequence[str]) -> NoReturn:
    """Run kubectl in place of this process, with the API of that kubeconfig. Raises ``CapabilityError``."""
    if not _is_process_of_its_own():  # but of click's CliRunner: kubectl would take the place of a whole test run
        raise click.UsageError("kubectl takes the place of this process; start `proxylab kubectl` as one of its own")
    binary = find_control_plane(REAL, control_plane_sources().cache).path
    # A file without a name, which kubectl opens anew whenever it reads it, and which ends with kubectl.
    file = os.memfd_create("kubeconfig", 0)
    os.write(file, json.dumps(kubeconfig).encode())
    environment = {"HOME": "/", **os.environ, "KUBECONFIG": f"/proc/self/fd/{file}"}
    os.execve(binary, (str(binary), "kubectl", *words), environment)  # noqa: S606 - a shell would split the arguments


def _is_process_of_its_own() -> bool:
    """Whether this process prints to its own standard output, whatever buffer that has."""
    try:
        return sys.stdout.fileno() == 1
    except (OSError, ValueError):  # there is no file below it
        return False
