"""Bundles of evidence on disk.

Owns: where a probe's bundle lies, writing it, and taking away what an earlier run left there.
Must not: know what is in it (``lab.report.bundle`` does).
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Final

from lab.report.bundle import CASE
from lab.verdict.model import UNRESOLVED, ProbeVerdict

__all__ = ["DEFAULT", "Shelf"]

DEFAULT: Final = Path(".proxylab/bundles")
"""Below the directory of the run. What lies there is nobody's to commit, which a .gitignore in it says."""

_LONGEST_NAME: Final = 60
_SUFFIX: Final = ".lab.yaml"


class Shelf:
    """The directory in which a run keeps its bundles."""

    def __init__(self, directory: Path, engine: str) -> None:
        """``engine`` is the run's: runs with different engines keep theirs side by side."""
        self._directory = directory
        self._engine = engine

    def settle(
        self, verdict: ProbeVerdict, files: Callable[[], Mapping[str, bytes]], warn: Callable[[str], None]
    ) -> ProbeVerdict:
        """Keep the evidence of a probe that did not pass, and none of one that did.

        Args:
            verdict: as judged.
            files: gathers the bundle; called only for what is kept.
            warn: told why nothing could be kept. A disk that is full must not end a run.

        Returns:
            The verdict, with the place of its evidence.
        """
        try:
            if verdict.overall in UNRESOLVED:
                return replace(verdict, bundle=str(self.keep(verdict, files())))
            self.clear(verdict)
        except OSError as error:
            warn(f"no evidence is kept of {verdict.probe.name!r}: {error}")
        return verdict

    def keep(self, verdict: ProbeVerdict, files: Mapping[str, bytes]) -> Path:
        """Write a probe's bundle, in place of the one of an earlier run.

        Returns:
            The directory of the bundle.

        Raises:
            OSError: the directory cannot be written.
        """
        self.clear(verdict)
        self._directory.mkdir(parents=True, exist_ok=True)
        ignored = self._directory / ".gitignore"
        if not ignored.exists():
            ignored.write_text("# Evidence of failed probes, kept by proxylab.\n*\n", encoding="ascii")
        folder = self.folder(verdict)
        for path, data in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            if data.startswith(b"#!"):
                file.chmod(0o755)
        return folder

    def clear(self, verdict: ProbeVerdict) -> None:
        """Take away what an earlier run kept of this probe: it says nothing of this one.

        Raises:
            OSError: it cannot be taken away.
        """
        folder = self.folder(verdict)
        if (folder / CASE).is_file():
            shutil.rmtree(folder)

    def folder(self, verdict: ProbeVerdict) -> Path:
        """A probe's place: engine, file, then number and name, in characters that every file system takes.

        Probes of two cases of a matrix have one number, and names that may differ only behind the cut.
        """
        name = verdict.probe.name
        slug = _slug(name)
        if len(slug) > _LONGEST_NAME:
            slug = f"{slug[:_LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:6]}"
        file = PurePath(verdict.probe.position.file.removesuffix(_SUFFIX))
        parts = [part for part in file.parts if part not in (file.anchor, "..")]
        return self._directory.joinpath(_slug(self._engine), *parts, f"{verdict.errand.number + 1:03d}-{slug}")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
