"""A checkout under pytest: the build is announced when it begins, and a broken one is no skip."""

import os
from pathlib import Path

import pytest
from plugin_project import Project

GO = """\
#!/bin/sh
[ "$1" != env ] || { echo '{"GOFLAGS": "", "GOWORK": ""}'; exit 0; }
echo 'proxier.go:7:2: undefined: chian' >&2
exit 1
"""


@pytest.fixture
def broken(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that does not build, in a project whose labs are no fakes."""
    folder = project.pytester.path
    (folder / "conftest.py").unlink()
    (folder / "bin").mkdir()
    (folder / "bin/go").write_text(GO)
    (folder / "bin/go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    main = folder / "kubernetes/cmd/kube-proxy/proxy.go"
    main.parent.mkdir(parents=True)
    main.write_text("package main\n")
    (folder / "kubernetes/go.mod").write_text("require k8s.io/component-base v0.37.2\n")
    return folder / "kubernetes"


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["", "xdist"])
def test_the_build_is_announced_past_the_capture_and_its_failure_is_an_error(
    project: Project, broken: Path, options: tuple[str, ...]
) -> None:
    project.scenario("x.lab.yaml", "one")
    chosen = ("--lab-engine=kube-proxy/nftables", f"--lab-kube-proxy={broken}", "--show-capture=no")
    result = project.pytester.runpytest_subprocess(*chosen, *options)
    result.assert_outcomes(errors=1)
    result.stderr.fnmatch_lines([f"building kube-proxy v1.37+unknown in {broken}; *"])
    result.stdout.fnmatch_lines(["*does not build: 'go build' failed", "*undefined: chian"])
