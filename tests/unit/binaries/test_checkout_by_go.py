"""A checkout as Go itself builds it: what of a user's settings reaches the build, and the source of the Go module.

The checkout is a small one, with one staging module. ``tests/engines`` builds a real one.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from module_pages import module
from site_of_pages import Site, served

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.checkout import CheckoutSource
from proxylab.errors import BuildError

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")

MAIN = """\
package main

import (
	"fmt"

	"k8s.io/component-base/version"
)

var tagged = ""

func main() { fmt.Println("Kubernetes", version.Get(), version.From, tagged) }
"""
TAGGED = '//go:build mine\n\npackage main\n\nfunc init() { tagged = "by-a-tag" }\n'
VERSION = """\
package version

var gitVersion, gitMajor, gitMinor, gitTreeState, gitCommit = "none", "", "", "", ""

const DefaultKubeBinaryVersion = "1.37"
const From = "{origin}"

func Get() string {{ return gitVersion }}
"""
GO_MOD = """\
module k8s.io/kubernetes

go 1.21

require k8s.io/component-base v0.0.0

replace k8s.io/component-base => ./staging/src/k8s.io/component-base
"""
BASE_MOD = "module k8s.io/component-base\n\ngo 1.21\n"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    published = module(
        "k8s.io/component-base", "v0.37.2", BASE_MOD, {"version/base.go": VERSION.format(origin="published")}
    )
    with served(published) as site:
        settings = {"GOPROXY": site.address, "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": ""}
        for name, value in {**settings, "GOMODCACHE": str(tmp_path / "modules")}.items():
            monkeypatch.setenv(name, value)
        yield site


@pytest.fixture
def checkout(tmp_path: Path, proxy: Site) -> Path:
    folder = tmp_path / "kubernetes"
    write(folder, "cmd/kube-proxy/proxy.go", MAIN)
    write(folder, "cmd/kube-proxy/tagged.go", TAGGED)
    write(folder, "go.mod", GO_MOD)
    write(folder, "go.sum", "")
    write(folder / "staging/src/k8s.io/component-base", "go.mod", BASE_MOD)
    write(folder / "staging/src/k8s.io/component-base", "version/base.go", VERSION.format(origin="staged"))
    return folder


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def built(checkout: Path) -> Binary:
    return CheckoutSource(checkout).obtain(Cache(checkout.parent / "cache"), lambda _line: None)


def printed(binary: Binary) -> str:
    return subprocess.run([binary.path], capture_output=True, text=True, check=True).stdout.strip()


def test_it_is_built_with_its_staging_modules(checkout: Path) -> None:
    assert printed(built(checkout)) == "Kubernetes v1.37+unknown staged"


def test_the_users_flags_of_go_reach_the_build_and_are_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-tags=mine -buildvcs=false")
    binary = built(checkout)
    assert printed(binary) == "Kubernetes v1.37+unknown staged by-a-tag"
    assert binary.origin == f"built in {checkout} with GOFLAGS=-tags=mine"


def test_flags_that_go_keeps_in_its_own_file_reach_it_too(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOFLAGS")
    monkeypatch.setenv("GOENV", str(tmp_path / "settings"))
    (tmp_path / "settings").write_text("GOFLAGS=-tags=mine\n")
    assert printed(built(checkout)).endswith("by-a-tag")


def test_a_workspace_around_it_reaches_the_build_and_is_named(checkout: Path, tmp_path: Path) -> None:
    """Such as one in which a user changes a staging module in a clone of its own."""
    write(tmp_path / "component-base", "go.mod", BASE_MOD)
    write(tmp_path / "component-base", "version/base.go", VERSION.format(origin="mine"))
    # The two modules of one name cannot both be in a workspace, so the replacement of go.mod is lifted.
    write(checkout, "go.mod", GO_MOD.rpartition("\nreplace")[0])
    write(tmp_path, "go.work", "go 1.21\n\nuse (\n\t./kubernetes\n\t./component-base\n)\n")
    binary = built(checkout)
    assert printed(binary) == "Kubernetes v1.37+unknown mine"
    assert binary.origin == f"built in {checkout} with the workspace {tmp_path / 'go.work'}"


def test_its_own_workspace_needs_no_word(checkout: Path) -> None:
    write(checkout, "go.work", "go 1.21\n\nuse (\n\t.\n\t./staging/src/k8s.io/component-base\n)\n")
    assert built(checkout).origin == f"built in {checkout}"


def test_the_source_of_the_module_is_built_with_the_staging_modules_published_with_it(
    checkout: Path, tmp_path: Path, proxy: Site
) -> None:
    """As it lies in the module cache, where nobody may write; its go.work names folders that it lacks."""
    shutil.rmtree(checkout / "staging")
    write(checkout, "go.work", "go 1.21\n\nuse (\n\t.\n\t./staging/src/k8s.io/component-base\n)\n")
    source = checkout.rename(tmp_path / "kubernetes@v1.37.2")
    for each in (source, *source.rglob("*")):
        each.chmod(each.stat().st_mode & ~0o222)
    binary = built(source)
    assert printed(binary) == "Kubernetes v1.37.2 published"
    assert binary.origin == f"built in {source}"
    assert binary.path.parents[2] == tmp_path / "cache/checkouts/unknown"


def test_the_source_of_the_module_is_refused_where_its_folder_does_not_say_the_version(checkout: Path) -> None:
    shutil.rmtree(checkout / "staging")
    with pytest.raises(BuildError, match=r"component-base\nclone .*built where its folder says its version"):
        built(checkout)


def test_what_does_not_compile_is_told_in_the_words_of_go(checkout: Path) -> None:
    write(checkout, "cmd/kube-proxy/proxy.go", MAIN.replace("fmt.Println", "fmt.Print1n"))
    with pytest.raises(BuildError, match=r"'go build' failed\n(.*\n)*.*undefined: fmt\.Print1n"):
        built(checkout)
