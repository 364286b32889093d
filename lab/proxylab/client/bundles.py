"""Writes evidence bundles to disk, and removes those of an earlier run."""

import re
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Final, TypeVar

from msgspec.structs import replace

from proxylab.report.bundle import CASE
from proxylab.report.step_bundle import STEP
from proxylab.verdict.model import UNRESOLVED, ProbeVerdict, StepVerdict

_Verdict = TypeVar("_Verdict", bound=ProbeVerdict | StepVerdict)

_LONGEST_NAME: Final = 60
_LONGEST_FILE: Final = 150
_SUFFIX: Final = ".lab.yaml"


class BundleStore:
    """The directory in which a run keeps its bundles, in a folder for each engine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def settle(
        self,
        verdict: _Verdict,
        engine: str,
        files: Callable[[], Mapping[str, bytes]],
        warn: Callable[[str], None],
        name: str = "",
    ) -> _Verdict:
        """Keep the evidence of a verdict that did not pass, and remove what an earlier run kept of the same probe.

        Args:
            verdict: the judgement.
            engine: that it was judged on.
            files: gathers the bundle; called only for a bundle that is kept.
            warn: receives the reason if nothing could be kept. A full disk must not end a run.
            name: the run's name for the probe, where that is more than its own name.

        Returns:
            The verdict, with the folder of its evidence.
        """
        own = verdict.written.name
        folder = self._folder(verdict, engine, name or own)
        try:
            if (folder / CASE).is_file() or (folder / STEP).is_file():
                shutil.rmtree(folder)  # it is an earlier run's
            if verdict.overall in UNRESOLVED:
                self._keep(folder, files())
                return replace(verdict, bundle=str(folder))
        except OSError as error:
            warn(f"cannot keep the evidence of {own!r}: {error}")
        return verdict

    def _keep(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        ignored = self._directory / ".gitignore"
        if not ignored.exists():
            ignored.write_text("# Evidence of failed probes, kept by proxylab.\n*\n", encoding="ascii")
        beside = folder.with_name(f".{folder.name}.part")  # renamed once it is whole
        shutil.rmtree(beside, ignore_errors=True)
        try:
            for path, data in files.items():
                file = beside / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
                if data.startswith(b"#!"):
                    file.chmod(0o755)
            beside.rename(folder)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def _folder(self, verdict: ProbeVerdict | StepVerdict, engine: str, name: str) -> Path:
        """A probe's folder: engine, file, then number and name, in characters that every file system takes.

        Two files of one run have two folders, also where one lies above the working directory.

        Probes of two cases of a matrix have one number, and names that may differ only behind the cut.
        """
        slug = _slug(name)
        if len(slug) > _LONGEST_NAME:
            slug = f"{slug[:_LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:6]}"
        if isinstance(verdict, StepVerdict):
            position, number = verdict.step.position, f"step-{verdict.number:03d}"
        else:
            position, number = verdict.probe.position, f"{verdict.resolved.number + 1:03d}"
        file = PurePath(position.file.removesuffix(_SUFFIX))
        outside = {file.anchor: "_root", "..": "_above"}
        parts = [outside.get(part, part) for part in file.parts]
        return self._directory.joinpath(_slug(engine), *parts, f"{number}-{slug}")


def pcap_file(directory: Path, name: str, frames: bytes) -> Path:
    """Write a capture under a name, which may be a pytest item's id, and return its file. Raises ``OSError``."""
    directory.mkdir(parents=True, exist_ok=True)
    ignored = directory / ".gitignore"
    if not ignored.exists():
        ignored.write_text("# Frames of probes, kept by proxylab.\n*\n", encoding="ascii")
    slug = _slug(name)
    if len(slug) > _LONGEST_FILE:
        slug = f"{slug[:_LONGEST_FILE]}-{sha256(name.encode()).hexdigest()[:6]}"
    file = directory / f"{slug}.pcapng"
    file.write_bytes(frames)
    return file


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
