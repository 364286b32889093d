"""``proxylab check``: report every mistake in scenario files at once.

Some mistakes show only in the plan: networks that are too small, an address that two pods claim. So the verb plans
every case of a scenario that it could read.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated

import click

from proxylab.cli.file_arguments import Files, load_all
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.engines.engine_names import EMBEDDED, mode_of, read_engine, version_of
from proxylab.engines.lacking import ignored_settings, lacking, lacking_of_step, refuse
from proxylab.errors import CapabilityError, ExitCode
from proxylab.evidence.words import amount
from proxylab.oracle.promised import promised_cases
from proxylab.plan.assembly import assemble, check_every_case
from proxylab.scenario.model import Scenario
from proxylab.scenario.strict import strict_versions
from proxylab.verdict.model import step_expectations

_DEFAULT_VERSION = "v1.36"
"""The version whose rules the embedded engine renders."""


class _Check(click.Command):
    """A command whose ``--strict`` may have no value, even before a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = len(list(takewhile(lambda arg: arg != "--", args)))
        bare = [f"--strict={_DEFAULT_VERSION}" if arg == "--strict" else arg for arg in args[:options]]
        return super().parse_args(ctx, [*bare, *args[options:]])


def _engine(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return str(read_engine(value)) if value else ""
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("check", cls=_Check, short_help="Report every mistake in scenario files; run nothing.")
@takes
def command(
    *,
    given: Files,
    strict: Annotated[
        str | None,
        option(
            "--strict",
            metavar="[=VERSION]",
            help=f"Also check manifests against the Kubernetes API schema of a version, by default {_DEFAULT_VERSION}. "
            "Needs proxylab[strict], but no network.",
        ),
    ],
    engine: Annotated[
        str,
        option(
            "--engine",
            metavar="ENGINE",
            default="",
            callback=_engine,
            help="Also list what this engine's mode cannot show, with the reason, and what to write instead, and the "
            "settings that it ignores. Only mode userspace lacks anything, so plain check names no mode.",
        ),
    ],
) -> ExitCode:
    """Report every mistake in the scenarios in FILE…; run nothing.

    A directory means every *.lab.yaml below it.

    Example: proxylab check scenarios
    """
    scenarios = load_all(given.files, strict=_version(strict))
    if not scenarios:
        echo("found no *.lab.yaml", err=True)
        return ExitCode.NOTHING_SELECTED
    check_every_case(scenarios)
    for scenario in scenarios:
        steps = len(scenario.judged) - len(scenario.all_probes)
        judged = amount(len(scenario.all_probes), "probe") + (f" and {amount(steps, 'step')}" if steps else "")
        echo(f"{scenario.file}: ok, {judged}")
        for note in scenario.notes:
            echo(f"{scenario.file}: {note}", err=True)
        for line in (*_ignored(scenario, engine), *_lacking(scenario, engine)) if engine else ():
            echo(line)
        for line in _left_open(scenario, engine or EMBEDDED[0]):
            echo(line)
    return ExitCode.OK


def _left_open(scenario: Scenario, engine: str) -> Iterator[str]:
    """A line for each probe that its author leaves to the promises, which do not say what must happen."""
    for case in promised_cases(scenario, mode_of(engine), version_of(engine)):
        for probe in case.all_probes:
            if why := probe.expect.undecided:
                what = f"on {engine} the promises of Kubernetes do not say what must happen: {why}; write expect"
                yield f"{probe.position}: {probe.name}: warning: {what}"


def _ignored(scenario: Scenario, engine: str) -> Iterator[str]:
    for key in ignored_settings(mode_of(engine), scenario.proxy):
        yield f"{scenario.file}: warning: mode {mode_of(engine)} ignores {key} of KubeProxyConfiguration"


def _lacking(scenario: Scenario, engine: str) -> Iterator[str]:
    """A line for each probe and expectation of a step that the engine's mode cannot show, or one for the scenario."""
    mode = mode_of(engine)
    for case in promised_cases(scenario, mode, version_of(engine)):
        try:
            refuse(engine, case)
        except CapabilityError as error:
            yield f"{scenario.file}: {engine} skips it: needs {error.missing}"
            return
        assembly = assemble(case)
        for probe in filter(case.foretells, case.all_probes):
            if reason := lacking(mode, assembly, probe):
                yield f"{probe.position}: {probe.name}: {engine} skips it: {reason}"
        for step in case.steps:
            lacks = lacking_of_step(mode, assembly, step)
            for key in step_expectations(step.expect):
                if lack := lacks.get(key.rpartition(".")[0]) or lacks.get(key):
                    yield f"{step.position}: {step.name}: {engine} skips {key}: {lack}"


def _version(written: str | None) -> str | None:
    if written is None:
        return None

    version = f"v{written.removeprefix('v')}"
    if version not in strict_versions():
        raise click.BadParameter(
            f"there is no schema {written!r}; there are {', '.join(strict_versions())}", param_hint="--strict"
        )
    return version
