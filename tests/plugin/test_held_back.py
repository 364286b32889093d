"""What needs a kube-proxy waits for `./dev test` to obtain one, and all else is tested first."""

import subprocess

import pytest
from plugin_project import Project

HELD = """
from held_back import HeldBack

def pytest_configure(config):
    config.pluginmanager.register(HeldBack(Path("obtaining")))
"""
BUILD = "until test -e ran; do sleep 0.05; done; echo {status} > obtaining/status"


@pytest.mark.parametrize("status", [0, 1, 4])
def test_it_is_held_back_until_the_lock_is_free(project: Project, status: int) -> None:
    netns_name = project.pytester.path
    conftest = (netns_name / "conftest.py").read_text()
    project.pytester.makeconftest(conftest + HELD)
    project.pytester.makepyfile(test_zoo="from pathlib import Path\ndef test_first(): Path('ran').touch()")
    project.scenario("a.lab.yaml", "holds")
    (netns_name / "obtaining").mkdir()
    with subprocess.Popen(
        ["flock", "obtaining/lock", "sh", "-c", BUILD.format(status=status)], cwd=netns_name
    ) as builder:
        while not (netns_name / "obtaining/lock").exists():
            assert builder.poll() is None
        result = project.run("--lab-engine", "kube-proxy/iptables", "--timeout", "20")
    result.assert_outcomes(passed=1 + (status == 0), skipped=int(status != 0))
    assert (project.events() != []) is (status == 0)
