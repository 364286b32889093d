"""A repository that holds nothing of this project: the steps of the page, typed with the wheel alone."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT, Command, File, matches, steps
from installed import Distribution, Environment

PAGE = ROOT / "docs/how-to/in-your-own-repository.md"
FAKE = "#!/bin/sh\nexit 0\n"
CHANGES_THE_MACHINE = ("apt-get", "modprobe", "sudo", "sysctl")
LACKS_A_CAPABILITY = 4


def runs(value: Any) -> list[str]:
    """Every command of a workflow."""
    if isinstance(value, dict):
        own = [value["run"]] if isinstance(value.get("run"), str) else []
        lines = [each for key in ("before_script", "script") for each in value.get(key, [])]
        return own + lines + [each for key, inner in value.items() for each in runs(inner)]
    return [each for inner in value for each in runs(inner)] if isinstance(value, list) else []


class Reader:
    """A user with a folder of their own, on whose path is nothing of this environment."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "my-repository"
        (self.folder / "wheels").mkdir(parents=True)
        shutil.copy(wheel, self.folder / "wheels")
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name in CHANGES_THE_MACHINE:
            (bin_folder / name).write_text(FAKE)
            (bin_folder / name).chmod(0o755)
        go = shutil.which("go")
        path = [bin_folder, "/usr/sbin", "/usr/bin", "/sbin", "/bin", *([Path(go).parent] if go else [])]
        of_pip = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "GO"))}
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        self._environment = {
            **of_pip,
            **proxies,
            "HOME": str(folder),
            "PATH": ":".join(map(str, path)),
            "LC_ALL": "C.UTF-8",
        }

    def type(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=self.folder,
            env=self._environment | {"COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )


pytestmark = pytest.mark.wheel


@pytest.fixture
def reader(tmp_path: Path, distribution: Distribution) -> Reader:
    return Reader(tmp_path, distribution.wheel)


# tests/packaging/test_wheel.py shows the wheel, and the test below what `init` writes, without installing anything.
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_steps_of_the_page_work_with_nothing_but_the_wheel(reader: Reader) -> None:
    first, *typed = steps(PAGE.read_text())
    assert isinstance(first, Command)
    assert first.text.startswith("./dev pip wheel ")  # the fixture has built it
    for step in typed:
        if isinstance(step, File):
            (reader.folder / step.name).write_text(step.text)
            (reader.folder / "go.mod").write_text("module example.com/mine\n")
            continue
        if " go test" in step.text and shutil.which("go") is None:
            continue
        done = reader.type(step.text)
        if done.returncode == LACKS_A_CAPABILITY or "No matching distribution" in done.stdout:
            pytest.skip(done.stdout)
        assert done.returncode == 0, f"$ {step.text}\n{done.stdout}"
        assert not step.output or matches(step.output, done.stdout.splitlines()), f"$ {step.text}\n{done.stdout}"
    workflow = yaml.safe_load((reader.folder / ".gitlab-ci.yml").read_text())
    shutil.rmtree(reader.folder / ".venv")
    done = reader.type("\n".join(runs(workflow)))
    assert done.returncode == 0, done.stdout
    assert "<testsuite " in (reader.folder / "lab.xml").read_text()
    assert "Content-Security-Policy" in (reader.folder / "lab.html").read_text()


def test_init_writes_a_repository_whose_tests_run(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "tox.ini").write_text("[tox]\n")
    said = environment.lab(tmp_path, "proxylab", "init", "--repo")
    assert "tox.ini exists already; add to it what you lack of\n\n  # tox -e lab runs" in said
    assert (tmp_path / "tox.ini").read_text() == "[tox]\n"
    assert ".proxylab/" in (tmp_path / ".gitignore").read_text().splitlines()
    assert "commit them, but not the evidence of failed probes in .proxylab/:\n  git add tests/" in said
    assert "4 passed" in environment.lab(tmp_path, "pytest", "tests").splitlines()[-1]
    github = yaml.safe_load((tmp_path / ".github/workflows/lab.yml").read_text())
    gitlab = yaml.safe_load((tmp_path / ".gitlab-ci.yml").read_text())
    # The thorough test types those of GitLab.
    assert runs(github["jobs"]["privileged"]) == runs(gitlab)
    assert set(runs(github["jobs"]["rootless"])) >= set(runs(gitlab)[1:])


def test_init_of_a_repository_takes_no_name(environment: Environment, tmp_path: Path) -> None:
    done = environment.type(tmp_path, "proxylab", "init", "--repo", "mine.lab.yaml")
    assert done.returncode == 2
    assert "give neither FILE nor --from with it" in done.stderr
    assert list(tmp_path.iterdir()) == []
