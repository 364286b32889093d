"""``proxylab kernels``: list the kernels that labs can run on, and build one."""

import json
import os
from collections.abc import Sequence
from functools import partial

import click

from proxylab.cli.terminal import terminal_width
from proxylab.errors import ExitCode
from proxylab.guest.kernels import Kernel, known_kernels
from proxylab.scenario.words import HOST
from proxylab.text import WIDTH, wrapped

__all__ = ["command", "kernels_lines"]

_NO_NFTABLES = "no nf_tables for IP: skips the nftables mode, and probes from nodes and from loopback"


@click.command("kernels", short_help="List the kernels that labs can run on; build one.")
@click.option("--obtain", is_flag=True, help="Build a user-mode Linux into the cache, from Debian's newest source.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(*, obtain: bool, output: str) -> ExitCode:
    """List the kernels that --kernel chooses from: this machine's, and user-mode Linuxes for labs in a guest.

    With --obtain, build a user-mode Linux with everything that labs use, and print its path. That takes minutes, some
    3 GiB of room for as long, and no privilege.

    Example: proxylab kernels --obtain
    """
    if obtain:
        from proxylab.guest.build import build_kernel  # noqa: PLC0415 - only a build needs it

        click.echo(str(build_kernel(partial(click.echo, err=True))))
        return ExitCode.OK
    kernels = tuple(known_kernels())
    if output == "json":
        listed = [{"release": each.release, "path": each.binary, "modules": each.modules or None} for each in kernels]
        click.echo(json.dumps({"host": os.uname().release, "uml": listed}, indent=2))
    else:
        click.echo("\n".join(kernels_lines(os.uname().release, kernels, terminal_width())))
    return ExitCode.OK


def kernels_lines(host: str, kernels: Sequence[Kernel], width: int = WIDTH) -> list[str]:
    """A line for each kernel; the first user-mode Linux is what ``--kernel uml`` means."""
    lines = [f"{HOST}  {host}  this machine's"]
    for number, kernel in enumerate(kernels):
        word = "uml " if number == 0 else "    "
        what = f"{word}  {kernel.release}  {kernel.binary}"
        lines += wrapped(f"{what}: {_NO_NFTABLES}" if not kernel.has_nftables else what, "", "      ", width)
    if not any(kernel.has_nftables for kernel in kernels):
        lines.append("`proxylab kernels --obtain` builds one that has everything that labs use")
    return lines
