"""One's own patch of kube-proxy: a work tree is built as it lies there, and what was changed is seen in a lab."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from documents import Command, clone_of_a_reader, needs_a_checkout, pages, play, steps
from kubernetes_checkout import NoSourcesError, make_checkout

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources
from proxylab.errors import ExitCode

ROOT = Path(__file__).parents[2]
TRACED = "scenarios/clusterip/from-a-pod.lab.yaml"
CHAIN, BY_ANOTHER_NAME = '= "services"', "of-a-patch"
COMMANDS = 7
"""On all pages together."""

PATCHED = "pkg/proxy/iptables/proxier.go"
COMMENT = '"kubernetes service portals"'

needs = pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("git", "go")), reason="needs git and Go, to build kube-proxy"
)


def built_and_traced(folder: Path, version: str, staged: str, cache: Path) -> str:
    """The way of a packet, through a kube-proxy whose rules have another comment than upstream's."""
    try:
        make_checkout(folder, version, staged)
    except NoSourcesError as error:
        pytest.skip(str(error))
    source = folder / PATCHED
    text = source.read_text()
    assert COMMENT in text
    source.write_text(text.replace(COMMENT, '"a patch of this test"'))
    scenario = str(ROOT / TRACED)
    choice = ["--engine", "kube-proxy/iptables", "--kube-proxy", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "trace", scenario, "client", "echo", *choice],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": str(ROOT / "lab"),
            "GOCACHE": go_cache(),
            "COLUMNS": "200",
        },
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert f"building kube-proxy {version}-dirty in {folder}" in done.stderr
    (built,) = (cache / "proxylab/kube-proxy/checkouts").glob(f"*/{version}-dirty/*/kube-proxy")
    built.unlink()  # it is large, and pytest keeps the folders of three runs
    shutil.rmtree(folder)
    return done.stdout


def go_cache() -> str:
    """Where Go keeps what it compiles, which is not to change with XDG_CACHE_HOME."""
    return subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()


def patched(checkout: Path) -> str:
    """A patch that calls a chain of mode nftables by another name; the checkout stays as it was."""
    source = checkout / "pkg/proxy/nftables/proxier.go"
    text = source.read_text()
    assert text.count(CHAIN) == 1
    source.write_text(text.replace(CHAIN, CHAIN.replace("services", BY_ANOTHER_NAME)))
    patch = subprocess.run(["git", "-C", str(checkout), "diff"], capture_output=True, text=True, check=True).stdout
    source.write_text(text)
    return patch


def in_a_checkout(page: Path, folder: Path) -> Iterator[Command]:
    """What a page says of a checkout, which is as it was cloned when its reader begins."""
    subprocess.run(["git", "-C", str(folder / "kubernetes"), "checkout", "-q", "."], check=True)
    found = steps(page.read_text(encoding="utf-8"))
    yield from (each for each in found if isinstance(each, Command) and needs_a_checkout(each))


def of_here(command: Command, here: Binary) -> Command:
    """With the cached release in place of one that was never obtained: to build that one, too, would take minutes."""
    minors = {binary.version.rpartition(".")[0] for binary in Sources.of_user().obtained()}

    def obtained(named: re.Match[str]) -> str:
        return named[0] if named[0] in minors else here.version.rpartition(".")[0]

    return replace(command, text=re.sub(r"(?<=kube-proxy@)v1\.\d+(?=/)", obtained, command.text))


def typed(command: Command, home: Path, cache: Path) -> str:
    """What it prints, to a user with this home and cache."""
    go = json.loads(subprocess.run(["go", "env", "-json"], capture_output=True, text=True, check=True).stdout)
    environment = {
        **{name: go[name] for name in ("GOCACHE", "GOENV", "GOMODCACHE", "GOPATH")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache),
        "COLUMNS": "200",
    }
    done = play(command, home, environment, seconds=500)
    assert done.returncode == ExitCode.OK, f"$ {command.text}\n{done.stdout}"
    return done.stdout


# tests/unit/binaries/test_checkout.py builds a small checkout, and tests/docs types such commands for another engine.
@needs
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_commands_of_the_pages_run_a_patch_of_ones_own(kube_proxy: Binary, tmp_path: Path) -> None:
    """Typed as they stand, by a user whose home is the clone's folder; of the scenarios there is the one they trace.

    Of the staging modules one is staged: Go has compiled the rest of them where it built kube-proxy before.
    """
    clone_of_a_reader(tmp_path)
    (tmp_path / "scenarios/clusterip").mkdir(parents=True)
    for name in (TRACED, "scenarios/conformance.json"):
        shutil.copy(ROOT / name, tmp_path / name)
    try:
        make_checkout(tmp_path / "kubernetes", kube_proxy.version, "kube-proxy")
    except NoSourcesError as error:
        pytest.skip(str(error))
    patch = patched(tmp_path / "kubernetes")
    (tmp_path / "my.patch").write_text(patch)
    binaries = tmp_path / "cache/proxylab/kube-proxy"
    binaries.mkdir(parents=True)
    for release in Cache.of_user().folder.glob("v*"):
        (binaries / release.name).symlink_to(release)  # what the pages compare one's own build with
    commands = (each for page in pages() for each in in_a_checkout(page, tmp_path))
    told = [typed(of_here(each, kube_proxy), tmp_path, binaries.parents[1]) for each in commands]
    assert len(told) == COMMANDS
    assert any(BY_ANOTHER_NAME in each for each in told)  # by trace
    (built,) = binaries.glob(f"checkouts/*/{kube_proxy.version}-dirty/*/kube-proxy")  # once for all of them
    built.unlink()  # it is large, and pytest keeps the folders of three runs
    shutil.rmtree(tmp_path / "kubernetes")


@needs
@pytest.mark.budget
@pytest.mark.timeout(1800)
def test_a_whole_clone_is_built(kube_proxy: Binary, tmp_path: Path) -> None:
    """With all staging modules where a clone has them, which are compiled anew: minutes, the first time."""
    told = built_and_traced(tmp_path / "kubernetes", kube_proxy.version, ".*", tmp_path / "cache")
    assert "a patch of this test" in told
