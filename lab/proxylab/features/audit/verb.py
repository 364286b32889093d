"""``proxylab audit``: ask every frontend of every Service from every kind of sender."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import click
from msgspec.structs import replace

from proxylab.cli.case_option import choose_case
from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.file_arguments import write_new
from proxylab.cli.input_files import read_input
from proxylab.cli.options import option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.scenario_files import complete_scenarios
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.errors import ExitCode
from proxylab.features.audit.audit_page import page
from proxylab.features.audit.findings import to_json, to_lines
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import with_senders
from proxylab.scenario.cases import cases
from proxylab.scenario.load import holds_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.versions import Version

_EVERY: Final = 100
"""After so many questions the verb says how far it is."""


@click.command("audit", short_help="Ask every Service from every kind of sender; write no probe.")
@takes
def command(
    *,
    report: Annotated[
        Path | None,
        option(
            "--report",
            metavar="FILE",
            type=OutputFile(new=True),
            help="Also write the audit as one new HTML file.",
        ),
    ],
    output: Output,
    words: Annotated[tuple[str, ...], lab_words("[FILE]", complete_scenarios, required=False)],
    options: LabOptions,
) -> ExitCode:
    """Ask every frontend of every Service from every kind of sender, and compare with what Kubernetes promises.

    FILE is a scenario, or manifests as you would apply them: their Services, Deployments, EndpointSlices and so on, in
    a cluster of three nodes. Its own probes and steps stay out; the audit adds its senders: a pod on every node, in its
    own network and in the node's, a machine outside and one on the link of the nodes. Without FILE, it asks in the
    standing lab, as it is now, from the senders that are there.

    It also asks for what lies beside: unused ports, unassigned addresses, echo requests. The exit code is 1 if an
    answer differs from what is promised; the first one is explained as by `proxylab probe`.

    Example: proxylab audit scenarios/clusterip/from-a-pod.lab.yaml
    """
    chosen = ChosenLab(words, options)
    if chosen.words:
        raise click.UsageError("FILE: name one scenario or one file of manifests, or none for the standing lab")
    with chosen.opened(_alone, _chosen) as lab:
        found = audit(lab, f"proxylab {shlex.join(sys.argv[1:])}", _say)
    if report is not None:
        write_new(report, page(found))
        echo(f"report: {report}", err=True)
    echo(to_json(found) if output == "json" else "\n".join(to_lines(found, terminal_width())))
    return found.exit_code


def _alone(scenario: Scenario) -> Scenario:
    return with_senders(replace(scenario, probes=(), steps=(), streams=()))


def _chosen(file: Path, case_id: str | None, mode: str, version: Version | None) -> Scenario:
    """The case of a scenario, or the only one of manifests. Raises ``ScenarioError``."""
    text = read_input(file, "a scenario, or Kubernetes manifests")
    if holds_scenario(text):
        return choose_case(file, case_id, mode, version)
    (case,) = cases(scenario_of_manifests(text, str(file)), mode, version)
    return case


def _say(done: int, of: int) -> None:
    if done % _EVERY == 0:
        echo(f"{done:,} of {of:,} questions", err=True)
