"""The page on verbs of other packages: its package is built, installed and called, in a folder of its own."""

import os
import sys
from pathlib import Path

import pytest
from documents import ROOT, Command, File, matches, play, steps

PAGE = ROOT / "docs/how-to/add-a-verb.md"


@pytest.mark.timeout(200)
def test_the_verb_of_the_page_is_installed_and_called(tmp_path: Path) -> None:
    source, site, scripts = (tmp_path / name for name in ("source", "site", "bin"))
    for folder in (source, scripts):
        folder.mkdir()
    for name in ("pip", "proxylab"):
        (scripts / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        (scripts / name).chmod(0o755)
    environment = {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": f"{site}:{ROOT / 'lab'}",
        # Nothing is downloaded, and the environment of the tests stays as it is.
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    for step in steps(PAGE.read_text()):
        if isinstance(step, File):
            (source / step.name).write_text(step.text)
            continue
        done = play(step, source, environment)
        assert done.returncode == 0, f"$ {step.text}\n{done.stdout}"
        assert not step.output or matches(step.output, done.stdout.splitlines()), f"$ {step.text}\n{done.stdout}"
    shown = play(Command(0, "proxylab --help", (), (0, 0)), source, environment).stdout
    assert "frontends  List the cluster IPs of a scenario. (proxylab-frontends 1.0)" in " ".join(shown.split("\n"))
