"""``--strict``: manifests against the Kubernetes API's own schema, which comes with a package."""

import re
import sys
from pathlib import Path

import pytest
from broken_scenarios import BASE
from golden_words import Told

from proxylab.cli import main
from proxylab.errors import CapabilityError, ExitCode, ScenarioError
from proxylab.scenario import strict
from proxylab.scenario.load import parse_scenario

ROOT = Path(__file__).resolve().parents[3]
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: web, ports: [{containerPort: 80}]}]}
"""


def problems(text: str, version: str = "v1.34") -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(BASE + text, "f", strict=version)
    return [re.sub("(allowed: a)[^;]*", r"\1, …", problem.removeprefix("f:")) for problem in caught.value.problems]


def test_what_an_api_server_takes_is_taken() -> None:
    assert parse_scenario(BASE + POD, "f", strict="v1.34").pods[-1].name == "web"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "image: web",
            "imaeg: web",
            "29:33: spec.containers[0].imaeg: Kubernetes v1.34 has no such key; allowed: a, …; did you mean 'image'?",
        ),
        (
            "image: web",
            "image: 5",
            "29:40: spec.containers[0].image: the schema of Kubernetes v1.34 refuses 5: type ['string', 'null']",
        ),
        (
            "{name: web, image: web",
            "{image: web",
            "29:21: spec.containers[0].name: is missing: Kubernetes v1.34 requires it",
        ),
    ],
)
def test_what_it_refuses_is_told_where_it_stands(old: str, new: str, said: str) -> None:
    assert parse_scenario(BASE + POD.replace(old, new), "f").pods[-1].name == "web"  # the lab does not mind
    assert problems(POD.replace(old, new)) == [said]


def test_objects_of_a_list_are_looked_at_too(told: Told) -> None:
    listed = "---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {}}\n"
    assert problems(listed) == told()


def test_a_mistake_that_has_been_told_is_told_once() -> None:
    (said,) = problems(
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{prot: 80, port: 80}]}\n"
    )
    assert said.endswith("did you mean 'port'?")
    assert "Kubernetes" not in said


def test_a_version_has_its_own_kinds(told: Told) -> None:
    young = "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: web}\nspec: {}\n"
    assert parse_scenario(BASE + young, "f", strict="v1.34").notes
    assert problems(young, "v1.32") == told()


def test_without_the_package_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_validate", None)
    strict._releases.cache_clear()
    with pytest.raises(CapabilityError, match=r"pip install 'proxylab\[strict\]'"):
        parse_scenario(BASE, "f", strict="v1.34")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--strict", "FILE"], ExitCode.OK),
        (["FILE", "--strict"], ExitCode.OK),
        (["--strict=v1.30", "FILE"], ExitCode.OK),
        (["--strict=1.30", "--", "FILE"], ExitCode.OK),
        (["--strict=1.5", "FILE"], ExitCode.SCENARIO),
    ],
)
def test_on_the_command_line(
    arguments: list[str], code: ExitCode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.lab.yaml"
    file.write_text(BASE)
    with pytest.raises(SystemExit) as ended:
        main(["check", *(str(file) if each == "FILE" else each for each in arguments)])
    assert ended.value.code == code
    said = capsys.readouterr()
    assert (said.out != "") is (code is ExitCode.OK)
    assert code is ExitCode.OK or "there are v1.25, " in said.err


def test_every_scenario_of_the_tree_holds(capsys: pytest.CaptureFixture[str]) -> None:
    files = (ROOT / "scenarios").rglob("*.lab.yaml")
    with pytest.raises(SystemExit) as ended:
        main(["check", "--strict", *(str(each) for each in files if each.stem != "old-manifest.lab")])
    assert ended.value.code == ExitCode.OK, capsys.readouterr().err
