"""A kube-proxy out of a container image, by a real Docker engine in namespaces of its own, as root.

The image is made on the spot, and pulled from a registry that stands beside the engine. In CI an engine must be had.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_images import ContainerImage
from docker_engine import DockerEngine, docker_engine
from docker_packages import UnobtainableError
from killing import held_by_us, spaces_of, state_of
from kube_proxies import PROGRAM
from machine import Machine, descendants

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.image import ImageSource
from proxylab.errors import CapabilityError, ExitCode

# tests/unit/binaries/test_image.py shows the same with a fake engine.
pytestmark = [pytest.mark.thorough, pytest.mark.skipif(os.geteuid() != 0, reason="a Docker engine needs root")]

ROOT = Path(__file__).parents[2]
CONTENT = PROGRAM.format(version="v1.36.3").encode()
# As build/server-image of kubernetes makes it: what starts first is a program that looks after the log.
UPSTREAMS = ContainerImage(
    files={"/usr/local/bin/kube-proxy": CONTENT, "/go-runner": b"#!/bin/sh\nexit 1\n"},
    settings={"Entrypoint": ["/go-runner", "/usr/local/bin/kube-proxy"], "Volumes": {"/var/log": {}}},
)


def found_of_docker() -> set[str]:
    """What an engine would make on this machine if it were not kept from it; a Docker of the machine's has it, too."""
    return {path for path in ("/run/docker.sock", "/var/lib/docker", "/opt/containerd") if os.path.exists(path)}


@pytest.fixture(scope="module")
def found_before() -> set[str]:
    return found_of_docker()


@pytest.fixture(scope="module")
def started(found_before: set[str]) -> Iterator[DockerEngine]:
    try:
        with docker_engine() as engine:
            yield engine
    except UnobtainableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"needs the files of docker.io: {error}")


@pytest.fixture
def engine(started: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    """The only engine that a search finds."""
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", started.host)
    return started


def load(image: ContainerImage, tag: str) -> None:
    import docker

    client = docker.from_env()
    try:
        assert [tag in each.tags for each in client.images.load(image.archive(tag))] == [True]
    finally:
        client.close()


def remains() -> list[str]:
    """The containers and volumes of the engine."""
    import docker

    client = docker.from_env()
    try:
        return [each.id for each in (*client.containers.list(all=True), *client.volumes.list())]
    finally:
        client.close()


def test_an_image_that_was_made_here(engine: DockerEngine, tmp_path: Path) -> None:
    load(UPSTREAMS, "mine/kube-proxy:patched")
    found = ImageSource("mine/kube-proxy:patched").obtain(Cache(tmp_path))
    assert found.path.read_bytes() == CONTENT
    assert (found.version, found.origin) == (
        "v1.36.3",
        "/usr/local/bin/kube-proxy of image mine/kube-proxy:patched",
    )
    assert os.access(found.path, os.X_OK)
    assert remains() == []


@pytest.mark.parametrize(
    ("repository", "named"),
    [("tagged", ":v1.36.3"), ("bare", ""), ("digested", "@{digest}"), ("both", ":v1.36.3@{digest}")],
)
def test_an_image_is_pulled_from_its_registry(
    engine: DockerEngine, repository: str, named: str, tmp_path: Path
) -> None:
    """Each from a repository of its own: nothing that was pulled before helps."""
    name = f"{repository}/kube-proxy"
    digest = UPSTREAMS.publish(engine.bundle_store, name, "v1.36.3")
    UPSTREAMS.publish(engine.bundle_store, name, "latest")
    ContainerImage(files={"/kube-proxy": b"another"}).publish(engine.bundle_store, name, "v1.35.0")
    reference = f"{engine.registry}/{name}{named.format(digest=digest)}"
    found = ImageSource(reference).obtain(Cache(tmp_path))
    assert found.path.read_bytes() == CONTENT
    assert found.origin.endswith(f"of image {reference}")
    assert remains() == []


@pytest.mark.parametrize(
    "image",
    [
        ContainerImage({"/opt/proxy/kube-proxy": CONTENT}, settings={"Entrypoint": ["/opt/proxy/kube-proxy"]}),
        ContainerImage({"/opt/real": CONTENT}, {"/usr/bin/kube-proxy": "/opt/link", "/opt/link": "real"}),
        ContainerImage({"/kube-proxy": CONTENT}),
    ],
    ids=["named by the entry point", "behind two links", "at the top"],
)
def test_other_images_have_it_elsewhere(engine: DockerEngine, image: ContainerImage, tmp_path: Path) -> None:
    load(image, "theirs:latest")
    assert ImageSource("theirs").obtain(Cache(tmp_path)).path.read_bytes() == CONTENT
    assert remains() == []


def test_what_has_none_is_told(engine: DockerEngine, tmp_path: Path) -> None:
    load(ContainerImage({"/bin/sh": b""}), "other:latest")
    with pytest.raises(CapabilityError, match="a kube-proxy in image other:latest: none of /usr/local/bin/kube-proxy,"):
        ImageSource("other:latest").obtain(Cache(tmp_path))
    load(ContainerImage({"/kube-proxy": b"#!/bin/sh\necho hello\n"}), "hello:latest")
    with pytest.raises(CapabilityError, match="prints: hello"):
        ImageSource("hello:latest").obtain(Cache(tmp_path))
    for missing in ("other:v2", f"{engine.registry}/nobody/kube-proxy:v1.36.3", "127.0.0.1:9/kube-proxy:v1.36.3"):
        with pytest.raises(CapabilityError, match=f"the image {missing} "):
            ImageSource(missing).obtain(Cache(tmp_path))
    assert remains() == []
    assert Cache(tmp_path).binaries() == []


def test_a_scenario_runs_on_an_image(engine: DockerEngine, kube_proxy: Binary, tmp_path: Path) -> None:
    real = ContainerImage({"/usr/local/bin/kube-proxy": kube_proxy.path.read_bytes()})
    real.publish(engine.bundle_store, "upstream/kube-proxy", kube_proxy.version)
    reference = f"{engine.registry}/upstream/kube-proxy:{kube_proxy.version}"
    scenario = str(ROOT / "scenarios/clusterip/ignores-external-traffic-policy.lab.yaml")
    choice = ["--engine", "kube-proxy/iptables", "--kube-proxy", f"image:{reference}"]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", "-o", "json", *choice, scenario],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert f"taking kube-proxy out of image {reference}" in done.stderr
    cache = Cache(tmp_path / "proxylab/kube-proxy")
    (kept,) = cache.part("images").binaries()
    assert cache.binaries() == [], "a tag may name any binary, so it stands for no version"
    assert kept.path.read_bytes() == kube_proxy.path.read_bytes()
    cases = json.loads(done.stdout)["scenarios"]
    assert {probe["judgement"] for case in cases for probe in case["probes"]} == {"pass"}
    found = {(case["binary"]["origin"], case["binary"]["sha256"]) for case in cases}
    assert found == {(f"/usr/local/bin/kube-proxy of image {reference}", kube_proxy.identity.digest)}
    kept.path.unlink()  # it is large, and pytest keeps the folders of three runs


@pytest.mark.parametrize("end", ["asked", "killed"])
def test_nothing_of_an_engine_remains(engine: DockerEngine, found_before: set[str], end: str) -> None:
    """``engine`` is there only to skip where none can be had; another one is ended here."""
    ours = spaces_of(os.getpid()) | spaces_of(engine.process.pid)
    before = Machine.now()
    with docker_engine() as other:
        seen = {pid: spaces_of(pid) for pid in descendants(other.process.pid)}
        folder = other.bundle_store.parent
        if end == "killed":
            other.process.kill()
    assert len(seen) >= 4, "unshare, the first process, dockerd and containerd"
    assert [pid for pid in seen if state_of(pid) not in {"", "Z", "X"}] == []
    assert held_by_us(set().union(*seen.values()) - ours) == set()
    assert before.differences(Machine.now()) == []
    assert not folder.exists()
    assert found_of_docker() == found_before
