"""``proxylab doctor``: check that this machine can run labs, and print the configuration for CI systems.

A lab process tries each capability in the sandbox where it would build a lab.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import click
from msgspec import Struct
from msgspec.structs import asdict

from proxylab.capability import Capability
from proxylab.cli.options import option, takes
from proxylab.cli.repository import CONTAINER, GITHUB, GITLAB, RUNNER
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, Output, terminal_width, wants_color
from proxylab.client.lab_process import LabProcess
from proxylab.errors import CapabilityError, ExitCode
from proxylab.guest.kernels import known_kernels
from proxylab.protocol.messages import Ready
from proxylab.scenario.words import HOST, UML
from proxylab.text import WIDTH, wrapped
from proxylab.timing import Deadline

_EXAMINATION_SECONDS: Final = 120.0

_CI: Final = f"""\
# GitHub Actions: .github/workflows/lab.yml
{GITHUB}
# GitLab CI: .gitlab-ci.yml
{GITLAB}
# GitLab CI: the runner's config.toml
{RUNNER}
# docker run, with no more than a lab needs
{CONTAINER}"""


@click.command("doctor", short_help="Check that this machine can run labs; print the fixes.")
@takes
def command(
    *,
    ci: Annotated[
        bool, option("--ci", is_flag=True, help="Print the configuration for GitHub Actions, GitLab CI and Docker.")
    ],
    output: Output,
    color: Color,
) -> ExitCode:
    """Try everything that a lab may need of this machine. Print what works, what each gap costs, and how to fix it.

    The exit code is 0 if labs can be built, even with gaps, and 4 if they cannot.

    Example: proxylab doctor
    """
    if ci:
        echo(_CI, nl=False)
        return ExitCode.OK
    ready, capabilities = _examined()
    guest = _guest(capabilities)
    lacking = any(each.required and not each.works for each in capabilities)
    if output == "json":
        document = {
            "apiVersion": "proxylab/v1",
            "kind": "Examination",
            "kernel": None if ready is None else ready.kernel,
            "rootless": None if ready is None else ready.rootless,
            "labs": not lacking,
            "capabilities": [asdict(each) for each in capabilities],
            "guest": None if guest is None else {"kernel": guest.kernel, "adds": list(guest.adds)},
        }
        echo(json.dumps(document, indent=2))
    else:
        echo(
            "\n".join(doctor_lines(ready, capabilities, terminal_width(), guest)), color=wants_color(sys.stdout, color)
        )
    return ExitCode.CAPABILITY if lacking else ExitCode.OK


class Guest(Struct, frozen=True):
    """The kernel that ``--kernel uml`` means, and the capabilities that it has and the machine's lacks."""

    kernel: str
    adds: tuple[str, ...]


def _guest(here: Sequence[Capability]) -> Guest | None:
    """What a guest would add; ``None`` if nothing is missing, or no guest boots."""
    missing = {each.name for each in here if not each.works}
    if not missing or next(known_kernels(), None) is None:
        return None
    ready, found = _examined(UML)
    if ready is None:
        return None
    if "a sandbox" in missing:
        return Guest(ready.kernel, ("a sandbox",))
    return Guest(ready.kernel, tuple(each.name for each in found if each.works and each.name in missing))


def _examined(kernel: str = HOST) -> tuple[Ready | None, tuple[Capability, ...]]:
    """What a lab process found; if none can start, that is the only finding."""
    with LabProcess(kernel=kernel) as process:
        try:
            ready = process.ready()
        except CapabilityError as error:
            return None, (
                Capability(
                    name="a sandbox", found=error.missing, works=False, cost="no lab", cure=error.cure, required=True
                ),
            )
        found = process.examine((), Deadline.after(_EXAMINATION_SECONDS))
    return ready, (*_of_sandbox(ready), *found)


def _of_sandbox(ready: Ready) -> Iterator[Capability]:
    """How labs are kept from the machine: the rights of their commands, and what bounds them."""
    way = "as root; commands are confined: to the machine they are an ordinary user who owns nothing"
    bounds = ready.bounds
    if ready.rootless:
        way, bounds = "in a user namespace; to the machine commands are you", "those of your user (ulimit -a)"
    elif ready.refused:
        way = f"as root; commands keep its rights over the machine: it refuses their confinement ({ready.refused})"
    elif not ready.confined:
        way = "as root"
    yield Capability(name="a sandbox", found=way, works=True, cost="no lab", cure="", required=True)
    yield Capability(name="limits of commands", found=bounds or "none", works=True, cost="", cure="")


def doctor_lines(
    ready: Ready | None, capabilities: Sequence[Capability], width: int = WIDTH, guest: Guest | None = None
) -> list[str]:
    """A line for each capability; a missing one is followed by its cost and its fix. Then what a guest would add."""
    room = max(len(each.name) for each in capabilities)
    lines = [] if ready is None else [f"kernel {ready.kernel}, {'an ordinary user' if ready.rootless else 'root'}", ""]
    for each in capabilities:
        word = click.style("ok     ", fg="green") if each.works else click.style("missing", fg="red")
        blank = " " * (len("missing") + 2 + room + 2)
        clauses = [each.found, *([] if each.works else [f"without it: {each.cost}", f"fix: {each.cure}"])]
        first, *rest = (part for clause in clauses for part in wrapped(clause, blank, f"{blank}  ", width))
        lines += [f"{word}  {each.name:{room}}  {first.strip()}", *rest]
    missing = sum(not each.works for each in capabilities)
    needed = [each.name for each in capabilities if each.required and not each.works]
    if needed:
        verdict = f"this machine cannot run labs: {', '.join(needed)} missing"
    elif missing:
        verdict = f"this machine can run labs; {missing} of {len(capabilities)} capabilities are missing"
    else:
        verdict = "this machine can run labs, and nothing is missing"
    if guest is not None and guest.adds:
        adds = f"labs with --kernel uml run on kernel {guest.kernel} and have them: {', '.join(guest.adds)}"
        return [*lines, "", verdict, *wrapped(adds, "", "", width)]
    return [*lines, "", verdict]
