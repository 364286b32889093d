"""Releases, from a site that the test serves itself."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_proxies import PROGRAM, program
from site_of_pages import Site, served

from proxylab.binaries.cache import Cache
from proxylab.binaries.release import ReleaseSource
from proxylab.errors import CapabilityError

CONTENT = PROGRAM.format(version="v1.34.2").encode()
PATH = "/release/v1.34.2/bin/linux/amd64/kube-proxy"
PAGES = {
    "/release/stable.txt": b"v1.36.3\n",
    "/release/stable-1.35.txt": b"v1.35.4",
    "/release/stable-1.34.txt": b"v1.34.2",
    "/release/stable-1.33.txt": b"<html>",
    PATH: CONTENT,
    f"{PATH}.sha256": hashlib.sha256(CONTENT).hexdigest().encode(),
}


@pytest.fixture
def site(machine_is: Callable[[str], None]) -> Iterator[Site]:
    machine_is("x86_64")
    with served(PAGES) as site:
        yield site


def source(site: Site) -> ReleaseSource:
    return ReleaseSource(site.address)


def test_the_newest_of_each_minor_is_offered(site: Site) -> None:
    assert source(site).versions() == ["v1.34.2", "v1.35.4", "v1.36.3"]


def test_a_release_is_kept_when_its_checksum_holds(site: Site, tmp_path: Path) -> None:
    binary = source(site).obtain("v1.34.2", Cache(tmp_path))
    assert binary.path.read_bytes() == CONTENT
    assert binary.path.parent.name == hashlib.sha256(CONTENT).hexdigest()
    assert binary.origin == f"{site.address}{PATH}"


def test_another_binary_of_that_version_is_not_the_release(site: Site, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.workspace("image") as folder:
        cache.keep(program(folder / "kube-proxy", "v1.34.2", "# with a patch"), "image example.org/kube-proxy:v1.34.2")
    release = source(site).obtain("v1.34.2", cache)
    assert release.path.read_bytes() == CONTENT
    asked = len(site.asked)
    assert source(site).obtain("v1.34.2", cache) == release
    assert len(site.asked) == asked  # the second time the cache has it


def test_another_byte_is_another_kube_proxy(site: Site, tmp_path: Path) -> None:
    site.pages[PATH] = CONTENT + b"\n"
    with pytest.raises(CapabilityError, match=r"has SHA-256 .*, expected "):
        source(site).obtain("v1.34.2", Cache(tmp_path))
    assert Cache(tmp_path).binaries() == []


def test_what_breaks_off_is_not_kept(site: Site, tmp_path: Path) -> None:
    site.torn.add(PATH)
    with pytest.raises(CapabilityError):
        source(site).obtain("v1.34.2", Cache(tmp_path))
    assert Cache(tmp_path).binaries() == []


def test_what_is_not_there_is_said(site: Site, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match=r"v1\.33\.9"):
        source(site).obtain("v1.33.9", Cache(tmp_path))
    with pytest.raises(CapabilityError, match="refused"):
        ReleaseSource("http://127.0.0.1:9").versions()
    site.pages["/release/stable.txt"] = b"<html>the page of a gateway"
    with pytest.raises(CapabilityError, match="has '<html>"):
        source(site).versions()


def test_a_machine_that_no_release_is_for(site: Site, machine_is: Callable[[str], None], tmp_path: Path) -> None:
    machine_is("vax")
    with pytest.raises(CapabilityError, match="for vax"):
        source(site).obtain("v1.34.2", Cache(tmp_path))
