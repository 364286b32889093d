"""``proxylab kernels``: list the kernels that labs can run on, and build one."""

import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import click

from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.errors import ExitCode
from proxylab.guest.kernels import Kernel, find_kernel, known_images, known_kernels
from proxylab.scenario.words import DEBIAN, HOST, UML
from proxylab.text import WIDTH, wrapped

_IN_QEMU = "qemu boots it, and runs it some ten times slower unless KVM works"
_NO_NFTABLES = "no nf_tables for IP: skips the nftables mode, and probes from nodes and from loopback"


@click.command("kernels", short_help="List the kernels that labs can run on; build one.")
@takes
def command(
    *,
    obtain: Annotated[
        str | None,
        option(
            "--obtain",
            metavar="[KERNEL]",
            is_flag=False,
            flag_value=UML,
            help="Build a user-mode Linux into the cache, from Debian's newest source; or download debian:VERSION.",
        ),
    ],
    output: Output,
) -> ExitCode:
    """List the kernels that --kernel chooses from: this machine's, user-mode Linuxes, and Debian's in the cache.

    With --obtain, build a user-mode Linux with everything that labs use, and print its path. That takes minutes, some
    3 GiB of room for as long, and no privilege. With --obtain debian:VERSION, download Debian's kernel of that version,
    as --kernel does; without VERSION, the newest that apt offers.

    Example: proxylab kernels --obtain
    """
    if obtain is not None and obtain != UML:
        if not obtain.startswith(DEBIAN):
            raise click.UsageError(f"--obtain: {obtain!r} is no kernel; allowed: {UML}, {DEBIAN}VERSION")
        if found := find_kernel(obtain):
            echo(found.binary)
        return ExitCode.OK
    if obtain:
        from proxylab.guest.build import build_kernel  # noqa: PLC0415 - only a build needs it

        echo(str(build_kernel(partial(echo, err=True))))
        return ExitCode.OK
    kernels = (*known_kernels(), *known_images())
    if output == "json":
        listed = [{"release": each.release, "path": each.binary, "modules": each.modules or None} for each in kernels]
        images = [each for each, kernel in zip(listed, kernels, strict=True) if kernel.is_image]
        document = {
            "host": os.uname().release,
            "uml": [each for each in listed if each not in images],
            "debian": images,
        }
        echo(json.dumps(document, indent=2))
    else:
        echo("\n".join(kernels_lines(os.uname().release, kernels, terminal_width())))
    return ExitCode.OK


def kernels_lines(host: str, kernels: Sequence[Kernel], width: int = WIDTH) -> list[str]:
    """A line for each kernel by the word that names it; without a word, by its path."""
    lines = [f"{HOST}  {host}  this machine's"]
    uml = next((kernel for kernel in kernels if not kernel.is_image), None)
    for kernel in kernels:
        word = UML if kernel is uml else ""
        if kernel.is_image:
            word = f"{DEBIAN}{kernel.release.rpartition('-')[0]}"
        what = f"{word:4}  {kernel.release}  {kernel.binary}"
        remark = _IN_QEMU if kernel.is_image else "" if kernel.has_nftables else _NO_NFTABLES
        lines += wrapped(f"{what}: {remark}" if remark else what, "", "      ", width)
    if not any(kernel.has_nftables and not kernel.is_image for kernel in kernels):
        lines.append("`proxylab kernels --obtain` builds one that has everything that labs use")
    return lines
