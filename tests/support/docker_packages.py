"""The programs of a Docker engine, from the files of Debian's and Ubuntu's ``docker.io``.

The package is downloaded once for each user and unpacked, but not installed: it would start a daemon in the machine's
own namespaces.
"""

import os
import platform
import re
import subprocess
from pathlib import Path

from proxylab.binaries.cache import Cache

__all__ = ["UnobtainableError", "unpacked"]

_PACKAGES = ("docker.io", "containerd", "runc")
_SECONDS = 300


class UnobtainableError(Exception):
    """No such package can be had here. Says why."""


def unpacked() -> Path:
    """The folder that holds ``usr/…/dockerd`` and what it needs beside the machine's own libraries.

    Raises:
        UnobtainableError: with what apt said.
    """
    cache = Cache(Cache.of_user().folder.parent / "docker-engine")
    release = platform.freedesktop_os_release()  # the libraries of one are not those of another
    there = cache.folder / f"{release['ID']}-{release.get('VERSION_ID', 'unstable')}-{platform.machine()}"
    with cache.workspace("docker engine") as working:
        if not there.is_dir():
            _download(working)
            for package in working.glob("*.deb"):
                _run(working, "dpkg-deb", "--extract", package.name, "root")
            (working / "root").rename(there)
    return there


def _download(folder: Path) -> None:
    """All packages as files in ``folder``, by the machine's lists, or by fresh ones that are no one else's."""
    lists = f"Dir::State::lists={folder}/lists"
    (folder / "lists" / "partial").mkdir(parents=True)
    try:
        _run(folder, "apt-get", "download", *_PACKAGES, *_libraries(folder))
    except UnobtainableError:
        _run(folder, "apt-get", "-o", lists, "update")
        _run(folder, "apt-get", "-o", lists, "download", *_PACKAGES, *_libraries(folder, "-o", lists))


def _libraries(folder: Path, *options: str) -> list[str]:
    """The libraries that those packages depend on and that this machine lacks."""
    said = _run(folder, "apt-cache", *options, "depends", *_PACKAGES)
    wanted = sorted(set(re.findall(r"^ +Depends: (lib\S+)", said, re.MULTILINE)))
    return [each for each in wanted if not _is_installed(each)]


def _is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"


def _run(folder: Path, *argv: str) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnobtainableError(str(error)) from error
    if done.returncode != 0:
        raise UnobtainableError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
