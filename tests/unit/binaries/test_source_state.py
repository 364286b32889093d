"""Which version sources call themselves: by their tags, or without any."""

import shutil
from pathlib import Path

import pytest
from git_repositories import git, make_repository

from proxylab.binaries.source_state import MAIN, Changes, changes_of, state_of
from proxylab.errors import BuildError

BASE = "staging/src/k8s.io/component-base/version/base.go"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git; 'apt-get install git'")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "kubernetes"
    write(folder, MAIN, "package main\n")
    write(folder, "go.mod", "module k8s.io/kubernetes\n")
    write(folder, BASE, 'package version\n\nconst DefaultKubeBinaryVersion = "1.37"\n')
    return folder


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_with_tags_it_is_what_git_says_in_the_manner_of_kubernetes(sources: Path) -> None:
    make_repository(sources, "v1.37.1")
    assert state_of(sources).version == "v1.37.1"
    write(sources, "go.mod", "module k8s.io/kubernetes // patched\n")
    assert state_of(sources).version == "v1.37.1-dirty"
    git(sources, "commit", "-qam", "A patch")
    after = state_of(sources).version
    assert after == f"v1.37.1-1+{git(sources, 'rev-parse', '--short=14', 'HEAD')}"
    git(sources, "tag", "v1.38.0-alpha.2")
    assert state_of(sources).version == "v1.38.0-alpha.2"
    git(sources, "commit", "-q", "--allow-empty", "-m", "Another")
    assert state_of(sources).version.startswith("v1.38.0-alpha.2.1+")


def test_a_clone_without_tags_has_the_minor_of_its_sources_and_its_commit(sources: Path, tmp_path: Path) -> None:
    make_repository(sources, "v1.37.2")
    git(sources, "commit", "-q", "--allow-empty", "-m", "Another")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{sources}", "shallow")
    commit = git(sources, "rev-parse", "HEAD")
    found = state_of(tmp_path / "shallow")
    assert (found.version, found.commit, found.dirty) == (f"v1.37+{commit[:14]}", commit, False)
    write(tmp_path / "shallow", MAIN, "package main // patched\n")
    assert state_of(tmp_path / "shallow").version == f"v1.37+{commit[:14]}-dirty"


@pytest.mark.parametrize("tag", ["v1.2.3", "v2.0.0", "release-7"])
def test_the_tags_of_a_fork_are_no_versions_of_kubernetes(sources: Path, tag: str) -> None:
    make_repository(sources, tag)
    assert state_of(sources).version.startswith("v1.37+")


def test_sources_in_the_repository_of_another_project_have_its_commit(sources: Path, tmp_path: Path) -> None:
    make_repository(tmp_path, "v1.4.0")
    found = state_of(sources)
    assert found.version == f"v1.37+{git(tmp_path, 'rev-parse', '--short=14', 'HEAD')}"
    write(tmp_path, "elsewhere", "changed\n")
    assert state_of(sources).dirty is False, "a file outside them is none of the sources"


def test_sources_that_a_repository_around_them_ignores_have_no_commit(sources: Path, tmp_path: Path) -> None:
    write(tmp_path, ".gitignore", "kubernetes\n")
    make_repository(tmp_path, "v1.37.9")
    found = state_of(sources)
    assert (found.version, found.commit, found.dirty) == ("v1.37+unknown", "", None)


def test_an_archive_has_its_commit_in_the_sources(sources: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    write(sources, BASE, f'var gitCommit = "{commit}"\nconst DefaultKubeBinaryVersion = "1.37"\n')
    found = state_of(sources)
    assert (found.version, found.commit, found.dirty) == ("v1.37+0123456789abcd", commit, None)
    write(sources, BASE, 'var gitCommit = "$Format:%H$"\nconst DefaultKubeBinaryVersion = "1.37"\n')
    assert state_of(sources).commit == ""


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"go.mod": "replace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\n"}, "v1.36+unknown"),
        ({"go.mod": "replace k8s.io/api v0.0.0 => k8s.io/api v0.36.3\n"}, "v1.36+unknown"),
        ({"go.mod": "require (\n\tk8s.io/component-base v0.35.1\n\tk8s.io/klog/v2 v2.130.1\n)\n"}, "v1.35+unknown"),
        ({"go.mod": "require k8s.io/api v0.34.0\n"}, "v1.34+unknown"),
        ({"CHANGELOG/CHANGELOG-1.9.md": "", "CHANGELOG/CHANGELOG-1.28.md": ""}, "v1.28+unknown"),
    ],
    ids=["replaced", "replaced-version", "required", "required-alone", "changelog"],
)
def test_without_the_staging_module_go_mod_or_the_changelog_says_the_minor(
    sources: Path, files: dict[str, str], version: str
) -> None:
    shutil.rmtree(sources / "staging")
    for name, text in files.items():
        write(sources, name, text)
    assert state_of(sources).version == version


def test_sources_that_say_nothing_are_refused_with_the_reason(sources: Path) -> None:
    shutil.rmtree(sources / "staging")
    write(sources, "go.mod", "require k8s.io/api v0.0.0\nreplace k8s.io/api => ./staging/src/k8s.io/api\n")
    make_repository(sources)
    with pytest.raises(BuildError, match=r"nothing says their version: no tag v1\.X\.Y.*\ntag the commit"):
        state_of(sources)


def known(changes: Changes | None) -> Changes:
    assert changes is not None
    return changes


def test_the_changes_of_a_branch_are_its_commits_and_what_is_not_committed(sources: Path, tmp_path: Path) -> None:
    make_repository(sources, "v1.37.2")
    git(tmp_path, "clone", "-q", str(sources), "clone")
    clone = tmp_path / "clone"
    assert known(changes_of(clone)).files == ()
    write(clone, "pkg/proxy/types.go", "package proxy\n")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "A change")
    write(clone, "go.mod", "module k8s.io/kubernetes // patched\n")
    write(clone, "pkg/proxy/new file.go", "package proxy\n")
    found = known(changes_of(clone))
    assert found.base == git(sources, "rev-parse", "HEAD")
    assert found.files == ("go.mod", "pkg/proxy/new file.go", "pkg/proxy/types.go")
    assert known(changes_of(clone, "HEAD")).files == ("go.mod", "pkg/proxy/new file.go")


def test_the_nearest_base_counts(sources: Path, tmp_path: Path) -> None:
    """A branch of a release begins at its tag, long after it left the main branch."""
    make_repository(sources)
    git(sources, "branch", "-M", "master")
    git(tmp_path, "clone", "-q", str(sources), "clone")
    clone = tmp_path / "clone"
    for name in ("one", "two"):
        write(clone, name, "")
        git(clone, "add", ".")
        git(clone, "commit", "-qm", name)
    git(clone, "tag", "v1.37.3")
    write(clone, "three", "")
    assert known(changes_of(clone)).files == ("three",)
    git(clone, "tag", "-d", "v1.37.3")
    assert known(changes_of(clone)).files == ("one", "three", "two")


def test_a_base_that_is_not_there_is_a_mistake(sources: Path, tmp_path: Path) -> None:
    make_repository(sources)
    with pytest.raises(ValueError, match="no commit 'v9'"):
        changes_of(sources, "v9")
    assert changes_of(tmp_path) is None, "in no repository nothing is known"
