"""``proxylab migrate``: audit a cluster on two proxies, and certify what changes from one to the other."""

import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import click
from msgspec.structs import replace

from proxylab.binary_identity import identity_lines
from proxylab.cli.case_option import CaseId, choose_case
from proxylab.cli.engine_options import OtherOptions, choices_of
from proxylab.cli.file_arguments import write_new
from proxylab.cli.input_files import read_input
from proxylab.cli.options import argument, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.scenario_files import complete_scenarios
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import mode_of, read_engine
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, ExitCode
from proxylab.features.audit.findings import Audit
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import with_senders
from proxylab.features.import_.reading import dump_files
from proxylab.features.migrate.certificate import certificate_of
from proxylab.features.migrate.certificate_page import page
from proxylab.features.migrate.certificate_text import to_json, to_lines
from proxylab.features.migrate.cluster_of_file import (
    ClusterOfFile,
    cluster_of_dump,
    cluster_of_manifests,
    is_dump,
)
from proxylab.features.migrate.open_connections import Switch
from proxylab.features.migrate.runs import switch, words_of
from proxylab.scenario.cases import cases
from proxylab.scenario.load import holds_scenario
from proxylab.scenario.model import Scenario

_WANTED: Final = "a scenario, Kubernetes manifests, or what kubectl printed"
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
    file: Annotated[Path, argument(type=click.Path(exists=True, path_type=Path), shell_complete=complete_scenarios)],
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

    FILE is a scenario, manifests as you would apply them, or a dump as `proxylab import` reads it: what `kubectl get
    svc,endpointslices,pods,nodes -A -o yaml` or `kubectl cluster-info dump -A` printed, or a folder of such a dump.

    For each change the output says which Services and senders it concerns, why (a promise of Kubernetes, or a
    documented difference, with its link) and what to do; it counts what stays the same, and names what the lab could
    not decide. Then it opens connections, lets the new engine take over in all nodes, and says which connections
    survive.
    Embedded engines give a first look. The exit code is 1 if something changes.

    Example: proxylab migrate scenarios/clusterip/from-a-pod.lab.yaml --from embedded/iptables --to embedded/nftables
    """
    if old == new:
        raise click.UsageError(f"--from and --to are both {old}; name two engines")
    choices = choices_of((old, new), options.proxy, kernel=options.kernel)
    for line in identity_lines((engine, choice.binary) for engine, choice in choices.items()):
        echo(line, err=True)
    cluster = _cluster(file)
    asked = {engine: _asked(file, cluster, case_id, choice) for engine, choice in choices.items()}
    before, after = (_audited(asked[engine], choices[engine], make_session) for engine in (old, new))
    found = replace(
        certificate_of(before, after),
        switch=_switch(asked[old], choices[old], choices[new], before, make_session),
        left_out=cluster.left_out if cluster else (),
    )
    if report is not None:
        write_new(report, page(found))
        echo(f"report: {report}", err=True)
    echo(to_json(found) if output == "json" else "\n".join(to_lines(found, terminal_width())))
    return found.exit_code


def _switch(
    asked: Scenario,
    choice: EngineChoice,
    new: EngineChoice,
    before: Audit,
    make_session: SessionMaker | None,
) -> Switch:
    """What becomes of open connections where the new proxy takes over under them."""
    echo(f"{choice.name} to {new.name}: open connections", err=True)
    try:
        with make_session(choice) if make_session else Session(choice) as session:
            return switch(session, asked, before, words_of(choice, new))
    except CapabilityError as error:
        return Switch(untried=error.missing)


def _audited(asked: Scenario, choice: EngineChoice, make_session: SessionMaker | None) -> Audit:
    def say(done: int, of: int) -> None:
        if done % _EVERY == 0:
            echo(f"{choice.name}: {done:,} of {of:,} questions", err=True)

    session = make_session(choice) if make_session else Session(choice)
    with session, closing(session.open(asked)) as lab:
        return audit(lab, f"proxylab {shlex.join(sys.argv[1:])}", say)


def _asked(file: Path, cluster: ClusterOfFile | None, case_id: str | None, choice: EngineChoice) -> Scenario:
    """The case of a scenario file, or the only one of another cluster, with the senders of an audit."""
    if cluster is None:
        case = choose_case(file, case_id, mode_of(choice.name), choice.version)
    else:
        (case,) = cases(cluster.scenario, mode_of(choice.name), choice.version)
    return with_senders(replace(case, probes=(), steps=(), streams=()))


def _cluster(file: Path) -> ClusterOfFile | None:
    """The cluster of manifests or of a dump; ``None`` for a scenario file. Raises ``ScenarioError``."""
    texts = [(str(each), read_input(each, _WANTED)) for each in dump_files(file)]
    if not file.is_dir() and holds_scenario(texts[0][1]):
        return None
    if file.is_dir() or is_dump(texts[0][1]):
        return cluster_of_dump(texts, str(file))
    return cluster_of_manifests(texts[0][1], str(file))
