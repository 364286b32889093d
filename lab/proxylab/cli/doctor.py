"""``proxylab doctor``: check that this machine can run labs, and print the configuration for CI systems.

A lab process tries each capability in the sandbox where it would build a lab. kube-proxy, CoreDNS and a control plane
come from the cache, or from sources that are asked where it has none.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import click
from msgspec import Struct
from msgspec.structs import asdict

from proxylab.binaries.binary import KUBE_PROXY
from proxylab.binaries.choose import SLOW_NOTES
from proxylab.binaries.programs import SOURCES_OF_PROGRAMS, ProgramHere, programs_here
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
_MISSING: Final = "missing"

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

    It names the kube-proxies, the CoreDNS and the control plane of the cache, and asks the sources of those that are
    not there.

    The exit code is 0 if labs can be built, even with gaps, and 4 if they cannot.

    Example: proxylab doctor
    """
    if ci:
        echo(_CI, nl=False)
        return ExitCode.OK
    ready, capabilities = _examined()
    guest = _guest(capabilities)
    programs = programs_here([of_user() for of_user in SOURCES_OF_PROGRAMS.values()])
    lacking = any(each.required and not each.works for each in capabilities)
    if output == "json":
        document = {
            "apiVersion": "proxylab/v1",
            "kind": "Examination",
            "kernel": None if ready is None else ready.kernel,
            "rootless": None if ready is None else ready.rootless,
            "labs": not lacking,
            "capabilities": [asdict(each) for each in capabilities],
            "programs": [_described(each) for each in programs],
            "guest": None if guest is None else {"kernel": guest.kernel, "adds": list(guest.adds)},
        }
        echo(json.dumps(document, indent=2))
    else:
        lines = doctor_lines(ready, capabilities, terminal_width(), guest, programs)
        echo("\n".join(lines), color=wants_color(sys.stdout, color))
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


def _described(here: ProgramHere) -> dict[str, object]:
    return {
        "name": here.program.name,
        "cached": [each.to_document() for each in here.cached],
        "sources": [each.to_document() for each in here.offered],
    }


def doctor_lines(
    ready: Ready | None,
    capabilities: Sequence[Capability],
    width: int = WIDTH,
    guest: Guest | None = None,
    programs: Sequence[ProgramHere] = (),
) -> list[str]:
    """A line for each capability; a missing one is followed by its cost and its fix. Then what a guest would add.

    The programs of a cluster follow: the versions in the cache, or how to obtain one.
    """
    room = max(map(len, (*(each.name for each in capabilities), *(each.program.name for each in programs))))

    def told(word: str, color: str, name: str, clauses: Sequence[str]) -> Iterator[str]:
        blank = " " * (len(_MISSING) + 2 + room + 2)
        first, *rest = (part for clause in clauses for part in wrapped(clause, blank, f"{blank}  ", width))
        yield f"{click.style(f'{word:{len(_MISSING)}}', fg=color)}  {name:{room}}  {first.strip()}"
        yield from rest

    lines = [] if ready is None else [f"kernel {ready.kernel}, {'an ordinary user' if ready.rootless else 'root'}", ""]
    for each in capabilities:
        clauses = [each.found, *([] if each.works else [f"without it: {each.cost}", f"fix: {each.cure}"])]
        word, color = ("ok", "green") if each.works else (_MISSING, "red")
        lines += told(word, color, each.name, clauses)
    for here in programs:
        word, color = ("cached", "green") if here.cached else ("absent", "yellow")
        lines += told(word, color, here.program.name, [*_how_to_come_by(here)])
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


def _how_to_come_by(here: ProgramHere) -> Iterator[str]:
    """The versions that the cache has; or what a lab is without the program, and what each source says."""
    if here.cached:
        yield ", ".join(f"{each.version} ({each.origin})" for each in reversed(here.cached))
        return
    name = here.program.name
    yield f"without it: {here.program.cost}"
    word = "" if name == KUBE_PROXY.name else f" {name}"
    if any(here.obtainable):
        yield f"fix: `proxylab engines --obtain{word}`, once"
    for offer in here.offered:
        note = SLOW_NOTES.get((name, offer.word), "a download")
        yield f"{offer.word}: needs {offer.error}" if offer.error else f"{offer.word}: {offer.versions[-1]}, {note}"
