"""Container images, by a fake engine and without one. With a real one: ``tests/engines/test_image.py``."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from container_images import ContainerImage
from fake_docker import FakeDocker, fake_docker
from kube_proxies import PROGRAM

from proxylab.binaries.cache import Cache
from proxylab.binaries.image import ImageSource
from proxylab.errors import CapabilityError, ExitCode

ROOT = Path(__file__).parents[3]
CONTENT = PROGRAM.format(version="v1.36.3").encode()
DIGEST = "sha256:" + "7" * 64
PLACE = "/usr/local/bin/kube-proxy"
UPSTREAMS = ContainerImage({PLACE: CONTENT}, settings={"Entrypoint": ["/go-runner", PLACE]})


def obtained(
    reference: str,
    folder: Path,
    patch: pytest.MonkeyPatch,
    *,
    here: Mapping[str, ContainerImage] | None = None,
    registry: Mapping[str, ContainerImage] | None = None,
) -> tuple[bytes, str, FakeDocker]:
    """The program out of the image, where it was, and the engine afterwards."""
    with fake_docker(here or {}, registry or {}) as engine:
        patch.setenv("DOCKER_HOST", engine.host)
        try:
            found = ImageSource(reference).obtain(Cache(folder))
        finally:
            assert engine.containers == {}
    return found.path.read_bytes(), found.origin, engine


def test_a_local_image_is_not_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, origin, _ = obtained(
        "mine/kube-proxy:patched", tmp_path, monkeypatch, here={"mine/kube-proxy:patched": UPSTREAMS}
    )
    assert (content, origin) == (CONTENT, f"{PLACE} of image mine/kube-proxy:patched")


@pytest.mark.parametrize(
    ("named", "pulled"),
    [
        (":v1.36.3", ":v1.36.3"),
        ("", ":latest"),
        (f"@{DIGEST}", f"@{DIGEST}"),
        (f":v1.36.3@{DIGEST}", f"@{DIGEST}"),
    ],
    ids=["tagged", "bare", "digested", "both"],
)
def test_just_the_named_image_is_pulled(
    named: str, pulled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "registry:5000/upstream/kube-proxy"
    registry = {name + pulled: UPSTREAMS, f"{name}:v1.35.0": ContainerImage({PLACE: b"another"})}
    content, origin, engine = obtained(name + named, tmp_path, monkeypatch, registry=registry)
    assert content == CONTENT
    assert origin.endswith(f"of image {name}{named}")
    assert engine.here.keys() == {name + pulled}


@pytest.mark.parametrize(
    "image",
    [
        ContainerImage({"/opt/proxy/kube-proxy": CONTENT}, settings={"Entrypoint": ["/opt/proxy/kube-proxy"]}),
        ContainerImage({"/opt/real": CONTENT}, {"/usr/bin/kube-proxy": "/opt/link", "/opt/link": "real"}),
        ContainerImage({"/kube-proxy": CONTENT}),
    ],
    ids=["named by the entry point", "behind two links", "at the top"],
)
def test_other_images_have_it_elsewhere(image: ContainerImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert obtained("theirs:latest", tmp_path, monkeypatch, here={"theirs:latest": image})[0] == CONTENT


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (ContainerImage({"/bin/sh": b""}), f"a kube-proxy in image other:latest: none of {PLACE},"),
        (ContainerImage({"/kube-proxy": b"#!/bin/sh\necho hello\n"}), "prints: hello"),
        (None, "the image other:latest "),
    ],
    ids=["no kube-proxy", "another program", "no image"],
)
def test_an_image_without_one_is_told(
    image: ContainerImage | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CapabilityError, match=said):
        obtained("other:latest", tmp_path, monkeypatch, here={"other:latest": image} if image else {})
    assert Cache(tmp_path).binaries() == []


@pytest.mark.parametrize("host", ["unix:///no/such/socket", "tcp://127.0.0.1:9", "nonsense://"])
def test_an_engine_that_does_not_answer_is_told(host: str, tmp_path: Path) -> None:
    """In a process of its own: the SDK leaves the socket open by which it has asked in vain."""
    asked = ["--engine", "kube-proxy/iptables", "--kube-proxy", "image:registry.k8s.io/kube-proxy:v1.36.3"]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", *asked, str(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "DOCKER_HOST": host, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.returncode == ExitCode.CAPABILITY
    assert "a Docker engine that answers" in done.stderr
    assert "set DOCKER_HOST" in done.stderr
    assert "Traceback" not in done.stderr
