"""The words that tests expect of messages, in one file for each folder of unit tests: ``tests/golden/words/``.

``assert verdict.reasons == told()`` compares with what the file holds for this test. A test with several such
comparisons has as many texts, in the order in which it makes them. ``--update-golden`` writes the texts of the tests
that run anew, so that a changed word of a message touches a golden file and no test.
"""

from pathlib import Path
from typing import Any

import yaml

__all__ = ["FOLDER", "Told", "held"]

FOLDER = Path(__file__).resolve().parents[1] / "golden/words"

HELD: dict[Path, dict[str, list[Any]]] = {}
"""What each golden file held when it was first read, and what was recorded since."""


def held(file: Path) -> dict[str, list[Any]]:
    """The texts by test."""
    if file not in HELD:
        HELD[file] = yaml.load(file.read_text(), yaml.CSafeLoader) if file.exists() else {}
    return HELD[file]


class Told:
    """Makes the texts of one test, one a call.

    Args:
        nodeid: of the test.
        update: whether the golden file takes what the test compares with each text.
    """

    def __init__(self, nodeid: str, *, update: bool) -> None:
        folder, _, self._name = nodeid.removeprefix("tests/unit/").partition("/")
        self._file = FOLDER / f"{folder}.yaml"
        self._golden = held(self._file).get(self._name, [])
        self._update = update
        self._made: list[Text] = []

    def __call__(self) -> "Text":
        place = len(self._made)
        assert self._update or place < len(self._golden), f"{self._file.name} lacks it; run with --update-golden"
        self._made.append(Text() if self._update else Text(self._golden[place]))
        return self._made[-1]

    def end(self) -> None:
        """Write what was recorded; or find texts that a test without a difference did not ask for."""
        texts = [each.golden for each in self._made]
        if not self._update:
            assert len(texts) == len(self._golden) or any(each.differs for each in self._made), (
                f"{self._name} compares {len(texts)} of {len(self._golden)} texts in {self._file.name}"
            )
        elif texts != self._golden:
            held(self._file)[self._name] = texts
            FOLDER.mkdir(exist_ok=True)
            self._file.write_text(yaml.dump(held(self._file), Dumper=_Lines, allow_unicode=True, width=116))


class Text:
    """A golden text, or a list of them. Without one it takes what it is first compared with."""

    def __init__(self, golden: Any = None) -> None:
        self.golden = golden
        self.differs = False

    def __eq__(self, seen: object) -> bool:
        plain = _plain(seen)
        if self.golden is None:
            self.golden = plain
        self.differs |= plain != self.golden
        return not self.differs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.golden)


class _Lines(yaml.SafeDumper):
    """Writes a text of several lines as lines."""


def _written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Lines.add_representer(str, _written)


def _plain(seen: object) -> object:
    if isinstance(seen, tuple | list):
        return [_plain(each) for each in seen]
    return str(seen) if isinstance(seen, str) else seen  # a word of an enumeration is its text
