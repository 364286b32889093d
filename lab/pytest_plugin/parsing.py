"""Scenario files, parsed once for all workers of a run.

Owns: ``Parsing``: which worker parses which file, and where the others find what it made.
Must not: wait for another worker, or keep anything beyond the run.

Each worker of xdist collects everything by itself, since all must find the same items; to parse the same files in each
of them would be most of what a collection costs. Workers of one machine share a directory, which pytest makes for the
user alone (mode 0700) and takes away later. A worker that wants a file which another has begun parses one that nobody
has begun meanwhile. Where there is none left, it parses the wanted file too: that costs milliseconds, and no worker
depends on another's life.
"""

import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from lab.scenario.model import Scenario

__all__ = ["Parsing", "parsing"]

_KEY = pytest.StashKey["Parsing"]()


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that was found, and what its result is called: by its path and what stands in it."""

    path: Path
    name: str


class Parsing:
    """What one worker knows of the files of a run.

    Args:
        parse: makes a scenario of a file; raises ``ScenarioError``.
        shared: the directory of all workers; ``None`` for who works alone.
    """

    def __init__(self, parse: Callable[[Path], Scenario], shared: Path | None) -> None:
        self._parse = parse
        self._shared = shared
        self._waiting: dict[Path, _Found] = {}

    def announce(self, path: Path) -> None:
        """A file will be asked for later, if nothing keeps this worker from it."""
        if self._shared is not None:
            with suppress(OSError):  # whoever asks for it is told
                self._waiting[path] = _Found(path, sha256(f"{path}\0".encode() + path.read_bytes()).hexdigest())

    def scenario(self, path: Path) -> Scenario:
        """The scenario of a file. Raises ``ScenarioError``."""
        wanted = self._waiting.pop(path, None)
        if wanted is None or self._shared is None:
            return self._parse(path)
        if self._begin(wanted):
            return self._finish(wanted)
        while (ready := self._ready(wanted)) is None:
            other = next((each for each in self._waiting.values() if self._begin(each)), None)
            if other is None:
                return self._parse(path)
            with suppress(Exception):  # whatever it is, it comes again when this file is asked for
                self._finish(other)
        return ready

    def _begin(self, found: _Found) -> bool:
        """Whether this worker is the first to take a file."""
        try:
            (self._place / f"{found.name}.begun").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _finish(self, found: _Found) -> Scenario:
        scenario = self._parse(found.path)
        with NamedTemporaryFile(dir=self._place, delete=False) as file:
            pickle.dump(scenario, file, pickle.HIGHEST_PROTOCOL)
        Path(file.name).rename(self._place / found.name)  # whole, or not there
        return scenario

    def _ready(self, found: _Found) -> Scenario | None:
        try:
            made = (self._place / found.name).read_bytes()
        except FileNotFoundError:
            return None
        scenario: Scenario = pickle.loads(made)  # noqa: S301 - from a directory that only this user may write to
        return scenario

    @property
    def _place(self) -> Path:
        assert self._shared is not None  # noqa: S101 - only then is anything announced
        return self._shared


def parsing(config: pytest.Config) -> Parsing:
    """The parsing of this worker."""
    known = config.stash.get(_KEY, None)
    if known is None:
        known = config.stash[_KEY] = Parsing(_load, _shared(config))
    return known


def _load(path: Path) -> Scenario:
    from lab.scenario.load import load_scenario  # noqa: PLC0415 - pydantic, for those who have scenarios to parse

    return load_scenario(path)


def _shared(config: pytest.Config) -> Path | None:
    """Beside the workers' own directories for temporary files; ``None`` where there are none, or no other worker."""
    own = config.getoption("basetemp", None) if hasattr(config, "workerinput") else None
    if own is None:
        return None
    shared = Path(own).parent / "proxylab-parsed"
    shared.mkdir(mode=0o700, exist_ok=True)
    return shared
