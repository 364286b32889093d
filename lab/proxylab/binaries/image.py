"""kube-proxy from a container image.

It runs no container: it creates one, copies the file out of it, and removes it. Upstream's image has kube-proxy in
``/usr/local/bin`` (build/server-image in kubernetes); in other images the entry point names its path.
"""

import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from msgspec import Struct

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.errors import CapabilityError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.images import Image

_PATHS: Final = ("/usr/local/bin/kube-proxy", "/usr/bin/kube-proxy", "/kube-proxy", "/hyperkube")
_ANSWER_SECONDS: Final = 300


class ImageSource(Struct, frozen=True):
    """Uses the Docker engine of the environment (``DOCKER_HOST`` and the rest, or its usual socket)."""

    reference: str

    def obtain(self, cache: Cache) -> Binary:
        """Copy kube-proxy out of the image, and pull the image unless the engine has it. Raises ``CapabilityError``."""
        import docker  # noqa: PLC0415 - takes half a second, and only images need it
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            client = docker.from_env(timeout=_ANSWER_SECONDS)
        except DockerException as error:
            cure = "start one, or set DOCKER_HOST"
            raise CapabilityError(f"a Docker engine that answers ({error})", cure) from error
        try:
            with cache.workspace(f"image {self.reference}") as folder:
                return self._copy(client, folder, cache)
        except (DockerException, OSError) as error:  # requests raises OSError when the engine goes away
            cure = "check its name, and that its registry is reachable"
            raise CapabilityError(f"the image {self.reference} ({error})", cure) from error
        finally:
            client.close()

    def _copy(self, client: "DockerClient", folder: Path, cache: Cache) -> Binary:
        from docker.errors import NotFound  # noqa: PLC0415

        image = self._image(client)
        container = client.containers.create(image, command=["kube-proxy"])
        try:
            for path in (*_PATHS, *_entry_point(image)):
                with suppress(NotFound):
                    candidate = folder / "kube-proxy"
                    if _extract(container, path, folder, candidate):
                        return cache.part("images").keep(candidate, f"{path} of image {self.reference}")
        finally:
            container.remove(force=True, v=True)  # with the image's volumes
        paths = ", ".join(_PATHS)
        raise CapabilityError(f"a kube-proxy in image {self.reference}: none of {paths} is there", "name another image")

    def _image(self, client: "DockerClient") -> "Image":
        from docker.errors import ImageNotFound  # noqa: PLC0415

        try:
            return client.images.get(self.reference)
        except ImageNotFound:
            return client.images.pull(*_name_and_tag(self.reference))


def _name_and_tag(reference: str) -> tuple[str, str | None]:
    """The digest or tag to pull; without one Docker's SDK would pull every tag."""
    if "@" in reference:
        return reference, None
    name, colon, tag = reference.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (reference, "latest")


def _entry_point(image: "Image") -> tuple[str, ...]:
    first = ((image.attrs.get("Config") or {}).get("Entrypoint") or [""])[0]
    return (first,) if first.startswith("/") and first.rpartition("/")[2] == "kube-proxy" else ()


def _extract(container: "Container", path: str, folder: Path, target: Path) -> bool:
    """Copy one file out of a container that was never started; follows a link."""
    pieces, described = container.get_archive(path)
    if described.get("linkTarget"):
        pieces, _ = container.get_archive(described["linkTarget"])
    archive = folder / "archive.tar"
    with archive.open("wb") as file:
        _write(pieces, file)
    with tarfile.open(archive) as members:
        for member in members:
            content = members.extractfile(member) if member.isfile() else None
            if content is not None:
                with content, target.open("wb") as file:
                    while piece := content.read(1 << 20):
                        file.write(piece)
                return True
    return False


def _write(pieces: Iterator[bytes], file: IO[bytes]) -> None:
    for piece in pieces:
        file.write(piece)
