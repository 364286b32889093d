"""The jobs that run the gate elsewhere call what ``proxylab gate`` has, and the image holds what that needs."""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from documents import ROOT

from proxylab.cli.command import proxylab
from proxylab.features.gate.touched import AREAS, BOTH
from proxylab.features.gate.verb import command

PAGE = (ROOT / "docs/how-to/run-the-gate-in-ci.md").read_text(encoding="utf-8")
CONTAINERFILE = (ROOT / ".ci/Containerfile").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / ".github/actions/gate/action.yml").read_text(encoding="utf-8"))
JOBS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def job_with(key: str) -> Any:
    (found,) = (each for each in JOBS if key in each)
    return found


def parsed(words: list[str], checkout: Path) -> dict[str, Any]:
    """The options that the words after ``proxylab gate`` give, with the checkout in place of theirs."""
    assert words[:2] == ["proxylab", "gate"]
    # As a verb of proxylab: click keeps a command's --help as the first context spells it.
    above = click.Context(proxylab, **proxylab.context_settings)
    return command.make_context("gate", [str(checkout), *words[3:]], parent=above).params


def variables() -> set[str]:
    return {str(each.envvar) for each in command.params if isinstance(each, click.Option) and each.envvar}


def test_prow_runs_the_gate_with_its_own_variables(tmp_path: Path) -> None:
    ((job,),) = job_with("presubmits")["presubmits"].values()
    (container,) = job["spec"]["containers"]
    assert parsed([*container["command"], *container["args"]], tmp_path)["minutes"] == 10
    assert variables() == {"ARTIFACTS", "PULL_BASE_SHA"}  # what prow sets
    ours = {each.path for each in AREAS if set(each.modes) & set(BOTH)}
    assert {each for each in ours if not re.search(job["run_if_changed"], each)} == set(), "the gate would not run"
    for file in ("pkg/kubelet/kubelet.go", "pkg/util/nodeport.go", "vendor/go.mod"):
        assert not re.search(job["run_if_changed"], file)


def test_github_uses_the_action_with_inputs_that_it_has() -> None:
    steps = job_with("jobs")["jobs"]["gate"]["steps"]
    checkout, action = steps
    assert checkout["with"]["fetch-depth"] == 0  # without history nothing is known of what a change touches
    assert action["uses"].partition("@")[0].endswith("/proxylab/.github/actions/gate")
    assert set(action["with"]) <= set(ACTION["inputs"])


def test_the_action_hands_its_inputs_to_the_gate(tmp_path: Path) -> None:
    (step,) = (each for each in ACTION["runs"]["steps"] if "gate" in each.get("run", ""))
    assert variables() <= {*step["env"]}
    line = next(each for each in step["run"].splitlines() if " gate " in each)
    words = shlex.split(line.replace("$MINUTES", "7"))
    assert parsed(words[1:], tmp_path)["minutes"] == 7
    (dev,) = (ROOT / ".github/actions/gate" / each for each in ["../../../dev"] if each in words[0])
    assert dev.resolve() == ROOT / "dev"
    inputs = set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"])))
    assert inputs == set(ACTION["inputs"])


def test_gitlab_keeps_the_report_that_the_gate_writes(tmp_path: Path) -> None:
    job = job_with("gate")["gate"]
    assert variables() <= {*job["variables"]}
    (line,) = job["script"]
    parsed(shlex.split(line), tmp_path)
    assert job["artifacts"]["reports"]["junit"] == job["variables"]["ARTIFACTS"] + "/junit_proxylab.xml"


@pytest.mark.parametrize("line", re.findall(r"^.*\bproxylab gate .*$", PAGE, re.MULTILINE))
def test_each_line_of_the_page_has_options_of_the_gate(line: str, tmp_path: Path) -> None:
    words = shlex.split(line.strip(" `.:-").removeprefix("run: ").removesuffix("\\"))
    start = max(index for index, word in enumerate(words) if word == "gate") - 1
    parsed(words[start:], tmp_path)


def test_the_image_has_what_dev_installs_for_a_run_and_what_a_build_needs() -> None:
    (installed,) = re.findall(r"apt-get install -y --no-install-recommends ((?:\\?\s*[a-z0-9-]+)+)", CONTAINERFILE)
    packages = set(installed.replace("\\", "").split())
    assert {
        "iptables",
        "iproute2",
        "nftables",
        "python3-venv",
    } <= packages  # a lab; tests/unit/test_dev.py holds `dev` to them
    assert {"golang-go", "git", "make", "ca-certificates"} <= packages  # go build, by modules, of a checkout
    assert "COPY . /usr/src/proxylab" in CONTAINERFILE


def test_the_image_states_its_nft() -> None:
    stated = re.findall(r"^ARG NFT_VERSION=([\d.]+)$", CONTAINERFILE, re.MULTILINE)
    assert len(stated) == 1
    assert re.search(r"nft --version \| grep -F \"v\$NFT_VERSION \".*exit 1", CONTAINERFILE)
