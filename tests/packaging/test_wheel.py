"""What a user has who installs proxylab by pip: the whole package, its command, its plugin and the catalogue."""

import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from installed import Distribution, Environment

from proxylab import __version__

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(file.relative_to(ROOT / "scenarios") for file in (ROOT / "scenarios").rglob("*.lab.yaml"))
SCHEMA = "# yaml-language-server: $schema="

OWN_TEST = """
from lab import ANSWER


def test_own():
    assert ANSWER == 42
"""
INI = "[pytest]\npythonpath = .\naddopts = --import-mode={}\n"


pytestmark = pytest.mark.wheel


@pytest.fixture
def beside_lab(environment: Environment, tmp_path: Path) -> Path:
    """A folder whose own package is called lab, with a scenario and its Python test in it."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/__init__.py").write_text("ANSWER = 42\n")
    (tmp_path / "lab/test_own.py").write_text(OWN_TEST)
    environment.lab(tmp_path, "proxylab", "init", "--from", "dns/external-name", "lab/names.lab.yaml")
    return tmp_path


@pytest.fixture
def beside_proxylab(environment: Environment, tmp_path: Path) -> Path:
    """A folder whose scenarios and tests lie in proxylab/, which is no package, in folders called as ours are."""
    (tmp_path / "proxylab/scenario").mkdir(parents=True)
    (tmp_path / "proxylab/scenario/test_own.py").write_text("def test_own(): assert True\n")
    environment.lab(tmp_path, "proxylab", "init", "--from", "dns/external-name", "proxylab/names.lab.yaml")
    return tmp_path


@pytest.fixture(params=["beside_lab", "beside_proxylab"])
def project(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_both_distributions_have_every_file_of_the_package(distribution: Distribution) -> None:
    package = ROOT / "lab" / "proxylab"
    files = {
        os.path.relpath(Path(folder, name), package.parent)
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if not name.endswith(".pyc")
    }
    assert "proxylab/catalogue/clusterip/from-a-pod.lab.yaml" in files
    with zipfile.ZipFile(distribution.wheel) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == files
    with tarfile.open(distribution.sdist) as sdist:
        members = {member.name.partition("/")[2]: member for member in sdist if not member.isdir()}
    assert {f"lab/{file}" for file in files} <= set(members)
    assert [name for name, member in members.items() if member.issym()] == []


@pytest.mark.parametrize("command", [("proxylab",), ("python", "-m", "proxylab")], ids=" ".join)
def test_the_command_is_that_of_the_wheel(environment: Environment, tmp_path: Path, command: tuple[str, ...]) -> None:
    assert environment.lab(tmp_path, *command, "--version").strip() == f"proxylab, version {__version__}"
    where = environment.lab(tmp_path, "python", "-c", "import proxylab; print(proxylab.__file__)")
    assert Path(where.strip()).is_relative_to(environment.packages)


# `python -m pytest` has the folder on its path before any plugin is loaded. The script gets it there afterwards, from
# the ini file, when nothing can be mistaken any more. Either mode meets one of the folders.
@pytest.mark.parametrize(
    ("project", "command", "mode"),
    [
        ("beside_lab", "python -m pytest", "prepend"),
        ("beside_proxylab", "python -m pytest", "importlib"),
        pytest.param("beside_lab", "pytest", "importlib", marks=pytest.mark.thorough),
        pytest.param("beside_proxylab", "pytest", "prepend", marks=pytest.mark.thorough),
    ],
    indirect=["project"],
)
def test_pytest_with_the_folder_on_its_path(environment: Environment, project: Path, command: str, mode: str) -> None:
    (project / "pytest.ini").write_text(INI.format(mode))
    assert "4 passed" in environment.lab(project, *command.split()).splitlines()[-1]


def test_commands_with_the_folder_on_the_path_of_python(environment: Environment, project: Path) -> None:
    assert "ok, 1 probe" in environment.lab(project, "proxylab", "check", ".", PYTHONPATH=".")
    assert "2 passed" in environment.lab(project, "proxylab", "run", ".", PYTHONPATH=".").splitlines()[-1]
    assert environment.lab(project, "python", "-m", "proxylab", "check", ".", PYTHONPATH=".")


@pytest.mark.parametrize(
    ("words", "environ", "collected"),
    [
        ((), {}, 2),
        (("-p", "proxylab"), {}, 2),
        (("-p", "no:proxylab"), {}, 0),
        (("-p", "proxylab"), {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, 2),
        (("-p", "proxylab.pytest_plugin"), {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, 2),
    ],
)
def test_the_plugin_can_be_named_or_left_out(
    environment: Environment, tmp_path: Path, words: tuple[str, ...], environ: dict[str, str], collected: int
) -> None:
    shutil.copy(ROOT / "scenarios/dns/external-name.lab.yaml", tmp_path)
    done = environment.type(tmp_path, "pytest", "--collect-only", "-q", *words, **environ)
    assert done.stdout.count("external-name.lab.yaml::") == collected, done.stdout + done.stderr
    assert done.returncode == (pytest.ExitCode.OK if collected else pytest.ExitCode.NO_TESTS_COLLECTED)


def test_the_whole_catalogue_can_be_taken(environment: Environment, tmp_path: Path) -> None:
    checked = environment.lab(tmp_path, "proxylab", "check", "--catalogue")
    catalogue = environment.packages / "proxylab/catalogue"
    assert [line.partition(":")[0] for line in checked.splitlines()] == [str(catalogue / file) for file in SCENARIOS]


def test_scenarios_of_the_catalogue_run(environment: Environment, tmp_path: Path) -> None:
    ran = environment.lab(tmp_path, "proxylab", "run", "-o", "json", "--catalogue", "icmp", "dns/external-name")
    expected = [file for file in SCENARIOS if file.parts[0] == "icmp" or str(file) == "dns/external-name.lab.yaml"]
    run = {scenario["file"] for scenario in json.loads(ran)["scenarios"]}
    assert run == {str(environment.packages / "proxylab/catalogue" / file) for file in expected}


def test_a_copy_of_a_scenario_runs_with_its_test_and_leads_to_the_schema(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    said = environment.lab(tmp_path, "proxylab", "init", "--from", "dns/external-name", "deep/er/web.lab.yaml")
    assert "pytest deep/er/test_web.py" in said
    first, _, rest = (tmp_path / "deep/er/web.lab.yaml").read_text().partition("\n")
    schema = (tmp_path / "deep/er" / first.removeprefix(SCHEMA)).resolve()
    assert schema.is_relative_to(environment.packages.resolve())
    assert schema.read_bytes() == (ROOT / "lab/proxylab/scenario/schema.json").read_bytes()
    assert rest == (ROOT / "scenarios/dns/external-name.lab.yaml").read_text().partition("\n")[2]
    assert "3 passed" in environment.lab(tmp_path, "pytest", "deep").splitlines()[-1]
