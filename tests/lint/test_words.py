"""The glossary is short, and retired words do not come back as names in the code, of files or in headings."""

import functools
import re
import subprocess
import tokenize
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "lab" / "proxylab"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

MOST_LINES = 200
MOST_WORDS = 15
RETIRED = frozenset(
    word
    for singular in (
        *("errand", "leash", "keeper", "fence", "detour", "upshot", "deed", "printout", "sift", "vanishing", "telling"),
        *("mute", "pulse", "station", "wire", "door", "front", "place", "desk", "visit"),
    )
    for word in (singular, f"{singular}s")
) | {"phrases", "shelf", "shelves", "whereabouts"}
"""docs/architecture.md has no use for them; the field's own words stand in their place."""

FOREIGN = frozenset({"from_wire", "to_wire"})
"""Names of dnspython, which are not ours to choose."""

PRONOUN = re.compile(r"(?<![a-z])(?:whoever|whom|somebody|nobody|anybody|everybody)(?![a-z])", re.IGNORECASE)
"""Words that hide the subject of a sentence, or of a name."""

SUFFIXES = (".py", ".md", ".yaml", ".json", ".css", ".js")

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ROW = re.compile(r"^\| \*?\*?([a-z][a-z ]+?)\*?\*? \|", re.MULTILINE)


def is_retired(name: str) -> bool:
    """Whether a part of the name, between underscores, hyphens, blanks or capitals, is a retired word."""
    return not RETIRED.isdisjoint(part.lower() for part in _PART.findall(name))


@functools.cache
def identifiers() -> frozenset[str]:
    found: set[str] = set()
    for module in PACKAGE.rglob("*.py"):
        with tokenize.open(module) as source:
            found |= {
                token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.NAME
            }
    return frozenset(found)


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no clone of git, so nothing says which files are the project's")
    return [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def read_lines(path: Path) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def retired_paths(paths: Iterable[Path]) -> set[str]:
    """The shortest beginning of each path that has a retired word in its last part."""
    beginnings = {each for path in paths for each in (path, *path.parents)}
    bad = {path for path in beginnings if is_retired(path.name)}
    return {str(path) for path in bad if bad.isdisjoint(path.parents)}


def glossary() -> list[str]:
    _, _, words = ARCHITECTURE.read_text().partition("\n## Words\n")
    table, _, _ = words.partition("\n## ")
    return [word for word in _ROW.findall(table) if word != "word"]


def test_no_identifier_has_a_retired_word() -> None:
    assert {name for name in identifiers() if is_retired(name)} - FOREIGN == set()


def test_no_file_has_a_retired_word_in_its_name() -> None:
    assert retired_paths(files()) == set()


def test_no_heading_of_a_page_has_a_retired_word() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    headings = [(page, line) for page in pages for line in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)]
    assert len(headings) > 50
    assert [(str(page), heading) for page, heading in headings if is_retired(heading)] == []


def test_texts_name_their_subjects() -> None:
    texts = [path for path in files() if path.parts[0] in ("lab", "docs", "scenarios") and path.suffix in SUFFIXES]
    lines = [(path, line) for path in [*texts, *ROOT.glob("*.md"), ROOT / "dev"] for line in read_lines(path)]
    assert len(lines) > 50_000
    assert [f"{path}: {line.strip()}" for path, line in lines if PRONOUN.search(line)] == []


def test_architecture_is_short() -> None:
    assert len(read_lines(ARCHITECTURE)) < MOST_LINES


def test_the_glossary_is_short() -> None:
    assert 10 <= len(glossary()) <= MOST_WORDS
    assert len(glossary()) == len(set(glossary()))


@pytest.mark.parametrize("word", glossary())
def test_the_code_uses_each_word_of_the_glossary(word: str) -> None:
    joined = {"outside host": "host", "sentinel packet": "sentinel"}.get(word, word).replace(" ", "")
    assert [name for name in identifiers() if joined in name.replace("_", "").lower()] != []


def test_architecture_names_only_files_that_exist() -> None:
    """A path counts from the root or from the package; a folder ends with a slash."""
    named = set(re.findall(r"`([\w./-]+(?:\.py|\.toml|/)|[\w.-]+/[\w./-]+\.\w+)`", ARCHITECTURE.read_text()))
    assert len(named) > 100
    assert [path for path in named if not (ROOT / path).exists() and not (PACKAGE / path).exists()] == []


def test_what_architecture_names_in_a_module_stands_there() -> None:
    """Such as ``settle`` in ``verdict/findings.py``."""
    named = re.findall(r"`([A-Za-z_]+)`(?: and `([A-Za-z_]+)`)? (?:in|of) `([\w/]+\.py)`", ARCHITECTURE.read_text())
    assert len(named) > 10
    assert [
        (name, path)
        for *names, path in named
        for name in filter(None, names)
        if re.search(rf"\b{name}\b", (PACKAGE / path).read_text(encoding="utf-8")) is None
    ] == []


def test_architecture_names_every_module_that_knows_a_mode_by_its_word() -> None:
    """Such a module needs a line for a new mode. Most modules of ``scenario`` have the word in an example only.

    ``nftables`` is the name of the kernel's own facility, too, which two modules try.
    """
    modules = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "scenario" not in path.parents]
    knowing = {str(path.relative_to(PACKAGE)) for path in modules if '"nftables"' in path.read_text(encoding="utf-8")}
    (row,) = re.findall(r"^\| a mode of the proxy \|.*$", ARCHITECTURE.read_text(), re.MULTILINE)
    about_the_kernel = {"capability.py", "kernel/capabilities.py"}
    assert about_the_kernel < knowing
    assert [name for name in sorted(knowing - about_the_kernel) if f"`{name}`" not in row] == []
    inside, _, outside = row.partition("Outside the package: ")
    assert "engines/embedded/nftables/" in inside
    assert len(re.findall(r"`[\w/]+\.py`", outside)) <= 3


@pytest.mark.parametrize("name", ["frontend", "FrontendKey", "placement", "replaced", "stationary", "wired", "visitor"])
def test_other_words_are_free(name: str) -> None:
    assert not is_retired(name)


@pytest.mark.parametrize("name", ["_FENCE", "WirePlan", "theFront", "by_visit", "at-the-desk", "DOORSocket", "places"])
def test_a_retired_word_is_found_as_a_part(name: str) -> None:
    assert is_retired(name)
