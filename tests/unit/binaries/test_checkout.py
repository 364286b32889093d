"""A checkout of kubernetes: what is one, how it is built, and what is told of it.

Go is a script here that writes down what it was told. What Go itself makes of a small one: ``test_checkout_by_go.py``.
A checkout that is really built: ``tests/engines``.
"""

import shutil
from pathlib import Path

import pytest
from git_repositories import git, make_repository

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.checkout import CheckoutSource, is_checkout
from proxylab.errors import BuildError, CapabilityError, ExitCode

GO = """\
#!/bin/sh
# A kube-proxy that says what version and commit it was linked with.
[ "$1" != env ] || { echo '{"GOFLAGS": "", "GOWORK": ""}'; exit 0; }
out= version= commit= state=
for word; do
  case $last in
    -o) out=$word ;;
    -ldflags)
      version=$(expr "$word" : '.*component-base/version.gitVersion=\\([^ ]*\\)')
      commit=$(expr "$word" : '.*component-base/version.gitCommit=\\([^ ]*\\)')
      state=$(expr "$word" : '.*component-base/version.gitTreeState=\\([^ ]*\\)') ;;
  esac
  last=$word
done
[ "$last" = ./cmd/kube-proxy ] && [ "$CGO_ENABLED" = 0 ] || exit 1
cat >"$out" <<END
#!/bin/sh
[ "\\$1" = --version=raw ] && echo 'version.Info{GitCommit:"$commit", GitTreeState:"$state"}' && exit
echo Kubernetes $version
END
cat cmd/kube-proxy/proxy.go | sed 's/^/# /' >>"$out"
"""

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git; 'apt-get install git'")


@pytest.fixture
def go(tmp_path: Path) -> str:
    script = tmp_path / "go"
    script.write_text(GO)
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "kubernetes"
    for name in ("go.mod", "cmd/kube-proxy/proxy.go"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    base = folder / "staging/src/k8s.io/component-base/version/base.go"
    base.parent.mkdir(parents=True)
    base.write_text('package version\n\nconst DefaultKubeBinaryVersion = "1.37"\n')
    return folder


def quiet(_line: str) -> None:
    pass


def built(checkout: Path, go: str) -> Binary:
    return CheckoutSource(checkout, go).obtain(Cache(checkout.parent / "cache"), quiet)


def test_what_is_a_checkout(checkout: Path) -> None:
    assert is_checkout(checkout)
    assert not is_checkout(checkout / "cmd")
    (checkout / "go.mod").unlink()
    assert not is_checkout(checkout)


def test_a_build_writes_nothing_into_it(checkout: Path, go: str) -> None:
    before = sorted(checkout.rglob("*"))
    assert built(checkout, go).origin == f"built in {checkout}"
    assert sorted(checkout.rglob("*")) == before


@needs_git
def test_builds_lie_apart_from_releases_by_commit_and_content(checkout: Path, go: str) -> None:
    make_repository(checkout, "v1.37.2")
    first = built(checkout, go)
    (checkout / "cmd/kube-proxy/proxy.go").write_text("a patch\n")
    patched = built(checkout, go)
    (checkout / "cmd/kube-proxy/proxy.go").write_text("another patch\n")
    other = built(checkout, go)
    commit = git(checkout, "rev-parse", "HEAD")
    parts = checkout.parent / "cache/checkouts" / commit
    assert {each.path.parents[2] for each in (first, patched, other)} == {parts}
    assert len({each.identity.digest for each in (first, patched, other)}) == 3
    git(checkout, "commit", "-qam", "It is mended")
    assert built(checkout, go).path.parents[2] != parts
    assert Cache(checkout.parent / "cache").binaries() == [], "none of them is among what stands for a version"


@needs_git
def test_a_build_says_its_commit_and_whether_that_is_all(checkout: Path, go: str) -> None:
    make_repository(checkout, "v1.37.2")
    commit = git(checkout, "rev-parse", "HEAD")
    clean = built(checkout, go).identity
    assert (clean.version, clean.commit, clean.dirty) == ("v1.37.2", commit, False)
    assert str(clean) == (
        f"kube-proxy v1.37.2: built in {checkout}; commit {commit[:12]}, clean; SHA-256 {clean.digest[:12]}"
    )
    (checkout / "pkg.go").write_text("new\n")  # no file of the commit differs, but Go builds it
    dirty = built(checkout, go).identity
    assert (dirty.version, dirty.commit, dirty.dirty) == ("v1.37.2-dirty", commit, True)


def test_what_was_built_there_last_lies_where_go_will_write(checkout: Path, tmp_path: Path, go: str) -> None:
    """So that Go finds, by the build ID in it, whether there is anything to be linked."""
    Path(go).write_text(GO.replace("\ncat >", '\n[ -f "$out" ] && version="$version as before"\ncat >'))
    assert "as before" not in built(checkout, go).path.read_text()
    assert "as before" in built(checkout, go).path.read_text()
    other = built(checkout.rename(tmp_path / "another"), go)
    assert "as before" not in other.path.read_text(), "of another folder it is not the last"


def test_building_is_told_when_it_begins(checkout: Path, tmp_path: Path, go: str) -> None:
    told: list[str] = []
    began: list[bool] = []
    Path(go).write_text(GO.replace("out= ", f": >{tmp_path}/begun\nout= "))

    def tell(line: str) -> None:
        told.append(line)
        began.append((tmp_path / "begun").exists())

    CheckoutSource(checkout, go).obtain(Cache(tmp_path / "cache"), tell)
    assert told == [f"building kube-proxy v1.37+unknown in {checkout}; Go's cache makes the next time quick"]
    assert began == [False]


def test_a_patch_that_does_not_build_is_a_fault_of_the_patch(checkout: Path, tmp_path: Path, go: str) -> None:
    Path(go).write_text(GO.replace("out= ", "echo 'proxier.go:7:2: undefined: chian' >&2; exit 1\nout= "))
    with pytest.raises(BuildError) as caught:
        built(checkout, go)
    assert str(caught.value) == (
        f"kube-proxy in {checkout} does not build: 'go build' failed\n  proxier.go:7:2: undefined: chian"
    )
    assert caught.value.exit_code is ExitCode.FAILED


def test_a_patch_that_does_not_run_is_a_fault_of_the_patch(checkout: Path, go: str) -> None:
    Path(go).write_text(GO.replace("echo Kubernetes $version", "echo panic: assignment to entry in nil map; exit 2"))
    with pytest.raises(BuildError, match=r"what they build does not run\n.*panic: assignment to entry in nil map"):
        built(checkout, go)


def test_without_go_the_machine_is_at_fault(checkout: Path) -> None:
    with pytest.raises(CapabilityError, match="Go, by which kube-proxy is built"):
        built(checkout, "/no/such/go")


def test_sources_that_lack_some_of_their_modules_are_refused(checkout: Path, go: str) -> None:
    go_mod = "module k8s.io/kubernetes\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n"
    (checkout / "go.mod").write_text(go_mod)
    with pytest.raises(BuildError, match=r"needs 1 folder .*such as .*/kubernetes/staging/src/k8s.io/api\nclone .*"):
        built(checkout, go)
