"""Container images without an engine. With one: ``tests/engines/test_image.py``."""

from pathlib import Path

import pytest

from lab.binaries.cache import Cache
from lab.binaries.image import ImageSource
from lab.errors import CapabilityError


# The SDK itself leaves the socket open by which it asked in vain.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("host", ["unix:///no/such/socket", "tcp://127.0.0.1:9", "nonsense://"])
def test_an_engine_that_does_not_answer_is_told(host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(CapabilityError, match="a Docker engine that answers") as caught:
        ImageSource("registry.k8s.io/kube-proxy:v1.36.3").obtain(Cache(tmp_path))
    assert "DOCKER_HOST" in caught.value.cure
