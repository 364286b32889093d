"""The verbs that look at a scenario and make nothing: plan, graph, rules, schema, init."""

import json
import re
from pathlib import Path

import pytest
import yaml
from broken_scenarios import BASE

from proxylab.cli import main
from proxylab.cli.init import TEXT
from proxylab.errors import ExitCode
from proxylab.scenario.document import Problems
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.source import read_documents

ROOT = Path(__file__).resolve().parents[3]
WHOLE = ROOT / "tests" / "golden" / "scenario" / "whole.lab.yaml"
LOOKING = ("check", "graph", "init", "plan", "rules", "schema")


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def type(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output, errors = self._capsys.readouterr()
        return int(ended.value.code or 0), output, errors


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.mark.parametrize("verb", LOOKING)
def test_the_example_of_the_help_works(
    shell: Shell, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    help_text = " ".join(shell.type(verb, "--help")[1].split())
    found = re.search(rf"Example: proxylab ({verb}(?: [\w./-]+)*?)(?= Options:| --?[a-z]+,|$)", help_text)
    assert found is not None, help_text
    monkeypatch.chdir(tmp_path if verb == "init" else ROOT)
    code, output, _ = shell.type(*found[1].split())
    assert code == ExitCode.OK
    assert output


def test_plan_says_what_is_allocated_and_what_masquerading_gives(shell: Shell) -> None:
    code, output, _ = shell.type("plan", "-o", "json", str(WHOLE))
    assert code == ExitCode.OK
    plan = json.loads(output)
    assert plan["case"] == "ipv4-bridge-hairpin-veth-AllowServiceExternalIPs=false-host"
    (node, _) = plan["nodes"]
    assert node["snatSources"] == {"uplink": ["172.18.0.2"], "pods": ["10.244.0.1"], "overlay": ["10.244.0.0"]}
    services = {service["name"]: service for service in plan["services"]}
    assert services["default/echo"]["ports"][0]["nodePort"] == 30080
    assert services["default/echo"]["healthCheckNodePort"] == 30086
    assert [each["pod"] for each in services["default/echo"]["endpoints"]] == ["echo-1", "echo-2"]


@pytest.mark.parametrize("inter_node", ["host-gw", "vxlan"])
@pytest.mark.parametrize(
    ("pod_network", "pods"),
    [("ptp", "10.244.1.1"), ("ptp-unnumbered", "172.18.0.3"), ("bridge", "10.244.1.1")],
)
@pytest.mark.parametrize("families", ["[IPv4]", "[IPv4, IPv6]"])
def test_plan_shows_the_source_of_every_path_in_every_topology(
    shell: Shell, tmp_path: Path, families: str, pod_network: str, inter_node: str, pods: str
) -> None:
    network = f"  network: {{families: {families}, podNetwork: {pod_network}, interNode: {inter_node}}}\n"
    file = tmp_path / "a.lab.yaml"
    file.write_text(TEXT.replace("spec:\n", "spec:\n" + network, 1).replace("[node-a]}", "[node-b]}"))
    code, output, _ = shell.type("plan", "-o", "json", str(file))
    assert code == ExitCode.OK
    sources = json.loads(output)["nodes"][1]["snatSources"]
    expected = {"uplink": "172.18.0.3", "pods": pods} | ({"overlay": "10.244.1.0"} if inter_node == "vxlan" else {})
    assert {device: found[0] for device, found in sources.items()} == expected
    assert {len(found) for found in sources.values()} == {families.count("IPv")}


def test_plan_says_the_same_as_yaml_and_as_json(shell: Shell) -> None:
    _, output, errors = shell.type("plan", str(WHOLE))
    assert yaml.safe_load(output) == json.loads(shell.type("plan", "-o", "json", str(WHOLE))[1])
    assert (
        "the first of 4 cases; --case may be ipv4-bridge-hairpin-veth-AllowServiceExternalIPs=false-host, "
        in " ".join(errors.split())
    )
    verbose = shell.type("plan", "-v", str(WHOLE))[1]
    assert verbose.startswith(output)
    assert "  vxlan " in verbose
    assert yaml.safe_load(verbose) == yaml.safe_load(output)


def test_a_case_is_chosen_by_its_id(shell: Shell) -> None:
    code, output, errors = shell.type(
        "plan", str(WHOLE), "--case", "ipv4+ipv6-bridge-none-AllowServiceExternalIPs=false-host"
    )
    assert (code, errors) == (ExitCode.OK, "")
    assert "fd00:172:18::2" in output
    code, output, errors = shell.type("plan", str(WHOLE), "--case", "ipv5")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "ipv4+ipv6-bridge-none-AllowServiceExternalIPs=false-host" in errors


def test_rules_are_those_of_the_node_that_is_asked_for(shell: Shell) -> None:
    first = shell.type("rules", str(WHOLE))[1]
    second = shell.type("rules", str(WHOLE), "--node", "node-b")[1]
    assert first.startswith("# IPv4 on node-a; assumed: the kernel has nfacct, which some rules count into\n*mangle\n")
    assert "--to-destination 10.244.0.10:8080" in first
    assert second != first
    code, output, errors = shell.type("rules", str(WHOLE), "--node", "node-z")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "node-a, node-b" in errors


def test_init_writes_a_scenario_without_mistakes_and_overwrites_nothing(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "a.lab.yaml"
    assert shell.type("init", str(file))[0] == ExitCode.OK
    assert shell.type("check", str(file))[0] == ExitCode.OK
    assert file.read_text() == TEXT
    assert len(parse_scenario(TEXT, "f").probes) == 3
    assert not any("expect" in probe for probe in next(yaml.safe_load_all(TEXT))["spec"]["probes"])
    file.write_text("mine")
    code, output, errors = shell.type("init", str(file))
    assert (code, output, file.read_text()) == (ExitCode.SCENARIO, "", "mine")
    assert "exists already" in errors
    assert "cannot write" in shell.type("init", str(tmp_path / "no" / "a.lab.yaml"))[2]


@pytest.mark.parametrize("value", ["1e3", "1.5e3", "0o17", "on", "1_0", "0777", "true", "1.2.3", "web"])
def test_get_writes_text_that_both_versions_of_yaml_read_as_text(shell: Shell, tmp_path: Path, value: str) -> None:
    file = tmp_path / "a.lab.yaml"
    file.write_text(BASE.replace("client: {}", f"client: {{labels: {{app: '{value}'}}}}"))
    code, output, _ = shell.type("get", str(file), "pods", "client", "-o", "yaml")
    ((document,), _) = read_documents(output, "f", Problems())
    assert code == ExitCode.OK
    assert document.root["metadata"]["labels"]["app"].value == value
    assert yaml.safe_load(output)["metadata"]["labels"]["app"] == value
