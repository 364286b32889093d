"""``proxylab expected``: what must become of a scenario's probes, and why, without running anything."""

from typing import Annotated

import click

from proxylab.cli.case_option import CaseId, ScenarioFile, choose_case
from proxylab.cli.options import argument, option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.cluster.configuration import Mode
from proxylab.engines.engine_names import NEWEST
from proxylab.errors import ExitCode
from proxylab.features.expected.expected_text import ExpectedProbe, to_json, to_lines
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import ask, moment_of, outside_reach
from proxylab.oracle.moment import Moment
from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.versions import Version, read_version


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> Version:
    try:
        return NEWEST if value is None else read_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("expected", short_help="Print what must become of probes, and why; run nothing.")
@takes
def command(
    *,
    file: ScenarioFile,
    name: Annotated[str | None, argument(required=False, metavar="[PROBE]")],
    case_id: CaseId,
    mode: Annotated[
        str,
        option(
            "--mode",
            type=click.Choice([each.value for each in Mode]),
            default="iptables",
            show_default=True,
            help="The proxies' mode.",
        ),
    ],
    version: Annotated[
        Version,
        option(
            "--kubernetes",
            metavar="VERSION",
            callback=_version,
            help=f"The proxies' version, such as 1.30; by default {'.'.join(map(str, NEWEST))}.",
        ),
    ],
    output: Output,
) -> ExitCode:
    """Print what must become of each probe of the scenario FILE, or of PROBE, by Kubernetes' own documents.

    For each probe: the outcome, the endpoints that it may reach with the share of each, the source address that each
    sees, and the sentences from which this follows, each with its document. Neither an engine nor what the author
    expects has a part in it. Where no document decides, the output says why.

    Example: proxylab expected scenarios/clusterip/from-a-pod.lab.yaml
    """
    scenario = choose_case(file, case_id, mode, version)
    probes = [each for each in scenario.all_probes if name in (None, each.name, scenario.case.words(each.name))]
    if not probes:
        echo(_no_probe(scenario, name), err=True)
        return ExitCode.NOTHING_SELECTED
    assembly = assemble(scenario)
    moments: dict[int, tuple[Moment, Oracle]] = {}
    expected = []
    for probe in probes:
        number = scenario.steps_before(probe)
        if number not in moments:
            moment = moment_of(assembly, number, Mode(mode), version)
            moments[number] = moment, Oracle(moment)
        expected.append(_expected(assembly, probe, version, *moments[number]))
    echo(to_json(expected) if output == "json" else "\n".join(to_lines(expected, terminal_width())))
    return ExitCode.OK


def _expected(assembly: Assembly, probe: Probe, version: Version, moment: Moment, oracle: Oracle) -> ExpectedProbe:
    if why := outside_reach(assembly, probe, version):
        return ExpectedProbe(name=probe.name, outside=why)
    asked = ask(assembly, probe, moment, oracle)
    return ExpectedProbe(name=probe.name, outside=asked.outside, asked=asked)


def _no_probe(scenario: Scenario, name: str | None) -> str:
    if name is None:
        return f"{scenario.file}: the scenario has no probe"
    known = "\n".join(f"  {each.name}" for each in scenario.all_probes)
    return f"PROBE: no probe is named {name!r}; there are\n{known}"
