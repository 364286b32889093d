"""Container images made from a few files: as `docker save` writes them, and as a registry serves them.

Their documents follow https://github.com/opencontainers/image-spec, and Docker's version 2, schema 2. No container
engine takes part.
"""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ContainerImage"]

_DOCKER = "application/vnd.docker"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class ContainerImage:
    """What an image has.

    Attributes:
        files: executables by their paths.
        links: where symbolic links lead, by their paths.
        settings: ``Config`` of the image, such as its entry point.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def archive(self, tag: str) -> bytes:
        """What `docker save` would write."""
        layer = self._layer()
        described = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
        return _tar(
            {
                "manifest.json": json.dumps(described).encode(),
                "config.json": self._config(layer),
                "layer.tar": layer,
            }
        )

    def publish(self, bundle_store: Path, name: str, tag: str) -> str:
        """Lay it where a registry serves it, behind a list of machines as upstream's images are; return its digest."""
        layer = self._layer()
        packed = gzip.compress(layer, 1)
        config = self._config(layer)
        blobs, manifests = bundle_store / name / "blobs", bundle_store / name / "manifests"
        for folder in (blobs, manifests):
            folder.mkdir(parents=True, exist_ok=True)
        for blob in (packed, config):
            (blobs / _digest(blob)).write_bytes(blob)
        manifest = _document(
            "distribution.manifest.v2",
            config=_descriptor(f"{_DOCKER}.container.image.v1+json", config),
            layers=[_descriptor(f"{_DOCKER}.image.rootfs.diff.tar.gzip", packed)],
        )
        here = {"os": "linux", "architecture": _MACHINES[platform.machine()]}
        listed = {**_descriptor(f"{_DOCKER}.distribution.manifest.v2+json", manifest), "platform": here}
        everywhere = _document("distribution.manifest.list.v2", manifests=[listed])
        (manifests / _digest(manifest)).write_bytes(manifest)
        for reference in (tag, _digest(everywhere)):
            (manifests / reference).write_bytes(everywhere)
        return _digest(everywhere)

    def _layer(self) -> bytes:
        return _tar(self.files, self.links)

    def _config(self, layer: bytes) -> bytes:
        return json.dumps(
            {
                "os": "linux",
                "architecture": _MACHINES[platform.machine()],
                "config": dict(self.settings),
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
                "history": [{"created_by": "a test"}],
            }
        ).encode()


def _tar(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.mode, member.size = 0o755, len(content)
            tar.addfile(member, io.BytesIO(content))
        for path, target in (links or {}).items():
            link = tarfile.TarInfo(path.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return packed.getvalue()


def _document(kind: str, **content: Any) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": f"{_DOCKER}.{kind}+json", **content}).encode()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "size": len(content), "digest": _digest(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
