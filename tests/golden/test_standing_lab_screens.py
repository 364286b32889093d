"""What commands print about standing labs, as files to be read and reviewed, at 80 columns and without colour.

Write the files anew with ``pytest tests/golden --update-golden``, then read the difference.
"""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from oracle_worlds import PROXY

from proxylab.cli import main
from proxylab.cli.terminal import changes_in_colour
from proxylab.client.edit import edit
from proxylab.evidence.engine_progress import Progress, ProxyRecord
from proxylab.features.diagnose.endpoints_stage import Dial, judge_endpoints, ready_endpoints
from proxylab.features.diagnose.engine_stage import judge_engines
from proxylab.features.diagnose.model import Diagnosis, Stage, holds
from proxylab.features.diagnose.name_stage import judge_name
from proxylab.features.diagnose.rules_stages import judge_entries
from proxylab.features.diagnose.subject import DiagnosedService
from proxylab.features.diagnose.verb import lines_of, painted
from proxylab.plan.assembly import assemble, lay_out
from proxylab.report.listing import KINDS, ListedKind
from proxylab.report.standing_labs import LabRow, labs_table, standing_lines
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

FILES = Path(__file__).parent / "standing_lab"
SCENARIO = FILES / "shop.lab.yaml"
EDITED = FILES / "shop-edited.lab.yaml"


def standing(width: int, *, alone: bool) -> str:
    lines = standing_lines(
        lay_out(scenario(SCENARIO)), name="shop", engine="embedded/iptables", left="8h", width=width, alone=alone
    )
    return "\n".join(lines) + "\n"


def scenario(file: Path) -> Scenario:
    return load_scenario(file)


def applied(*, colour: bool) -> str:
    found = edit(assemble(scenario(SCENARIO)), 0, scenario(EDITED))
    assert not found.refused
    text = "\n".join(changes_in_colour(found.changes)) + "\n"
    return text if colour else click.unstyle(text)


def refused() -> str:
    return "\n".join(edit(assemble(scenario(EDITED)), 0, scenario(FILES / "shop-rewired.lab.yaml")).refused) + "\n"


def diagnosed(width: int, *, broken: bool, colour: bool = False) -> str:
    layout = lay_out(scenario(SCENARIO))
    service = next(each for each in layout.services if each.name == "web")
    subject = DiagnosedService.of(service, layout.objects, layout.scenario.network.families, PROXY)
    nodes = [each.name for each in subject.nodes]
    behind = ready_endpoints(subject)
    found = [
        judge_name(subject, "client", None),
        judge_endpoints(subject, [Dial(backend=each, sender="client", answered=True) for each in behind]),
        judge_engines([engine_of(node) for node in nodes]),
    ]
    if broken:
        found.append(judge_entries(subject, {}, nodes))
    else:
        found += [holds(each, "as it must be") for each in list(Stage)[3:]]
    diagnosis = Diagnosis.of("default/web", "embedded/iptables", tuple(found))
    commands = [f"proxylab {each}" for each in found[-1].look_at]
    lines = lines_of(diagnosis, commands, width)
    return "\n".join(map(painted, lines) if colour else lines) + "\n"


def engine_of(node: str) -> ProxyRecord:
    progress = Progress(runs=True, reflects=14, due=14)
    return ProxyRecord(
        node=node, engine="embedded/iptables", progress=progress, healthz=200, asked="http://127.0.0.1:10256/healthz"
    )


LABS = [
    LabRow(
        "hairpin", "kube-proxy/nftables", "2d3h", "4h59m", "running", "scenarios/hairpin/bridge.lab.yaml [ipv6-none]"
    ),
    LabRow("shop", "embedded/iptables", "3s", "with its creator", "busy", "shop.lab.yaml"),
    LabRow("stuck", "?", "?", "?", "unresponsive", "starting, or hung; `proxylab down` stops it"),
]

SCREENS: dict[str, Callable[[], str]] = {
    "up": lambda: standing(80, alone=True),
    "ps": lambda: "\n".join(labs_table(LABS)) + "\n",
    "ps-none": lambda: "\n".join(labs_table([])) + "\n",
    "apply": lambda: applied(colour=False),
    "apply-refused": refused,
    "diagnose": lambda: diagnosed(80, broken=True),
    "diagnose-sound": lambda: diagnosed(80, broken=False),
}

TYPED = {
    **{f"get-{kind}": ("get", kind) for kind in ("nodes", "pods", "services", "endpoints", "endpointslices")},
    **{f"get-{kind}-wide": ("get", kind, "-o", "wide") for kind in ("nodes", "pods", "services", "endpoints")},
    "get-one-yaml": ("get", "service/web", "-o", "yaml"),
    "get-endpoints-json": ("get", "ep", "web", "-o", "json"),
    "get-names": ("get", "pods", "-o", "name"),
    "get-several": ("get", "svc,pods"),
    "describe-node": ("describe", "node", "node-a"),
    "describe-pod": ("describe", "pod", "web-1"),
    "describe-service": ("describe", "service", "web"),
    "describe-host": ("describe", "host", "outside"),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str, update_golden: bool) -> None:
    compare(name, SCREENS[name](), update=update_golden)


@pytest.mark.parametrize("name", TYPED)
def test_typed(
    name: str, update_golden: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on every terminal, as kubectl has it."""
    verb, *words = TYPED[name]
    for width, colour in (("80", ""), ("160", "1")):
        monkeypatch.setenv("COLUMNS", width)
        monkeypatch.setenv("FORCE_COLOR", colour)
        with pytest.raises(SystemExit) as ended:
            main([verb, str(SCENARIO), *words])
        assert ended.value.code == 0
        compare(name, capsys.readouterr().out, update=update_golden)


API_KINDS = {"nodes": "Node", "pods": "Pod", "services": "Service"}


@pytest.mark.parametrize("kind", [each for each in KINDS if not each.named], ids=lambda kind: kind.plural)
def test_every_kind_is_had_in_every_form(kind: ListedKind, capsys: pytest.CaptureFixture[str]) -> None:
    """What the API has of endpoints are their slices."""

    def typed(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["get", str(SCENARIO), kind.plural, *options])
        assert ended.value.code == 0
        return capsys.readouterr().out

    document = json.loads(typed("-o", "json"))
    assert yaml.safe_load(typed("-o", "yaml")) == document
    assert document["kind"] == "List"
    assert {each["kind"] for each in document["items"]} == {API_KINDS.get(kind.plural, "EndpointSlice")}
    assert all(each["metadata"]["name"] for each in document["items"])
    plain, wide = typed().splitlines(), typed("-o", "wide").splitlines()
    assert len(plain) == len(wide) > 1
    assert [each.split()[0] for each in plain] == [each.split()[0] for each in wide]
    assert max(map(len, wide)) > max(map(len, plain))


def compare(name: str, text: str, *, update: bool) -> None:
    file = FILES / f"{name}.txt"
    if update:
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("width", [80, 160])
def test_lines_fit_their_terminal_and_colour_adds_nothing_but_colour(width: int) -> None:
    plain = diagnosed(width, broken=True)
    coloured = diagnosed(width, broken=True, colour=True)
    assert click.unstyle(coloured) == plain != coloured
    assert max(map(len, (plain + standing(width, alone=False)).splitlines())) <= width
    assert click.unstyle(applied(colour=True)) == applied(colour=False) != applied(colour=True)


def test_no_screen_is_left_over() -> None:
    assert {file.stem for file in FILES.glob("*.txt")} == {*SCREENS, *TYPED}
