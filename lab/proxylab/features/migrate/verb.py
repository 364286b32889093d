"""``proxylab migrate``: audit a cluster on two proxies, and certify what changes from one to the other."""

import re
import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import click
from msgspec.structs import replace

from proxylab.binary_identity import identity_lines
from proxylab.cli.case_option import CaseId, ScenarioFile, choose_case
from proxylab.cli.engine_options import OtherOptions, choices_of
from proxylab.cli.file_arguments import write_new
from proxylab.cli.input_files import read_input
from proxylab.cli.options import option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import mode_of, read_engine
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, ExitCode
from proxylab.features.audit.findings import Audit
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import with_senders
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output
from proxylab.features.migrate.certificate import certificate_of
from proxylab.features.migrate.certificate_page import page
from proxylab.features.migrate.certificate_text import to_json, to_lines
from proxylab.features.migrate.open_connections import Switch
from proxylab.features.migrate.runs import switch, words_of
from proxylab.scenario.cases import cases
from proxylab.scenario.load import holds_scenario, parse_scenario
from proxylab.scenario.model import Scenario

_DUMP: Final = re.compile(r"^(?:kind: List|[ {]*\"kind\": ?\"List\"),?\s*$", re.MULTILINE)
_EVERY: Final = 100
"""After so many questions the verb says how far it is."""


def _engine(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return str(read_engine(value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("migrate", short_help="Certify what changes for Services when another proxy takes over.")
@takes
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    file: ScenarioFile,
    old: Annotated[
        str, option("--from", metavar="NAME", required=True, callback=_engine, help="The engine that runs now.")
    ],
    new: Annotated[
        str, option("--to", metavar="NAME", required=True, callback=_engine, help="The engine that takes over.")
    ],
    report: Annotated[
        Path | None,
        option(
            "--report",
            metavar="FILE",
            type=OutputFile(new=True),
            help="Also write the certificate as one new HTML file.",
        ),
    ],
    output: Output,
    options: OtherOptions,
    case_id: CaseId,
) -> ExitCode:
    """Ask all that `proxylab audit` asks on two engines, and print what changes from one to the other.

    FILE is a scenario, manifests as you would apply them, or what `kubectl get svc,endpointslices,pods,nodes -A -o
    yaml` printed. For each change the output says which Services and senders it concerns, why (a promise of Kubernetes,
    or a documented difference, with its link) and what to do; it counts what stays the same, and names what the lab
    could not decide. Then it opens connections, lets the new engine take over in all nodes, and says which connections
    survive.
    Embedded engines give a first look. The exit code is 1 if something changes.

    Example: proxylab migrate scenarios/clusterip/from-a-pod.lab.yaml --from embedded/iptables --to embedded/nftables
    """
    if old == new:
        raise click.UsageError(f"--from and --to are both {old}; name two engines")
    choices = choices_of((old, new), options.proxy, kernel=options.kernel)
    for line in identity_lines((engine, choice.binary) for engine, choice in choices.items()):
        echo(line, err=True)
    before, after = (_audited(file, case_id, choices[engine], make_session) for engine in (old, new))
    found = replace(
        certificate_of(before, after), switch=_switch(file, case_id, choices[old], choices[new], before, make_session)
    )
    if report is not None:
        write_new(report, page(found))
        echo(f"report: {report}", err=True)
    echo(to_json(found) if output == "json" else "\n".join(to_lines(found, terminal_width())))
    return found.exit_code


def _switch(
    file: Path,
    case_id: str | None,
    choice: EngineChoice,
    new: EngineChoice,
    before: Audit,
    make_session: SessionMaker | None,
) -> Switch:
    """What becomes of open connections where the new proxy takes over under them."""
    echo(f"{choice.name} to {new.name}: open connections", err=True)
    try:
        with make_session(choice) if make_session else Session(choice) as session:
            return switch(session, _asked(file, case_id, choice), before, words_of(choice, new))
    except CapabilityError as error:
        return Switch(untried=error.missing)


def _asked(file: Path, case_id: str | None, choice: EngineChoice) -> Scenario:
    return with_senders(replace(_chosen(file, case_id, choice), probes=(), steps=(), streams=()))


def _audited(file: Path, case_id: str | None, choice: EngineChoice, make_session: SessionMaker | None) -> Audit:
    scenario = _asked(file, case_id, choice)

    def say(done: int, of: int) -> None:
        if done % _EVERY == 0:
            echo(f"{choice.name}: {done:,} of {of:,} questions", err=True)

    session = make_session(choice) if make_session else Session(choice)
    with session, closing(session.open(scenario)) as lab:
        return audit(lab, f"proxylab {shlex.join(sys.argv[1:])}", say)


def _chosen(file: Path, case_id: str | None, choice: EngineChoice) -> Scenario:
    """The case of a scenario, or the only one of manifests or of a dump. Raises ``ScenarioError``."""
    text = read_input(file, "a scenario, Kubernetes manifests, or what kubectl printed")
    if holds_scenario(text):
        return choose_case(file, case_id, mode_of(choice.name), choice.version)
    if _DUMP.search(text):
        imported = import_cluster(read_kubectl_output([(str(file), text)]), "imported")
        scenario = parse_scenario(imported.text, str(file))
    else:
        scenario = scenario_of_manifests(text, str(file))
    (case,) = cases(scenario, mode_of(choice.name), choice.version)
    return case
