"""Which files of pure tests no change reaches: ``./dev test`` leaves them out, and ``--all`` runs them.

A pure test needs no kernel. It sees the modules that it imports, directly or through others, and files of the project
that are no code: its result is the same as before unless one of these changed. The imports are read off the texts. A
module that loads others by name, starts Python or looks for the project's folder may see any file, and counts as if it
imported all. A changed scenario reaches those that name the folder of the catalogue, and another file that is no code,
such as a golden, reaches every test.

As a command this prints pytest's option for each such file, one a line, and says on standard error how many there are.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from changes import ROOT, base_of, changed_since

__all__ = ["importers", "reached_by", "unreached"]

ANY = "any file"
"""What a module imports that may see any file."""

SCENARIOS = "scenarios"
"""What a module imports that reads files of the catalogue: it names their folder."""

_TESTS = ("tests/golden/", "tests/property/", "tests/unit/")
_IMPORTED_FROM = ("lab/", "tests/benchmarks/", "tests/editor/", "tests/kernel/", "tests/support/")
_FROM = r"from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|.*)"
_IMPORT = re.compile(rf"^[ \t]*(?:{_FROM}|import[ \t]+(?P<modules>[\w., \t]+))", re.MULTILINE)
_COMMENT = re.compile(r"#.*")
_NAMED = re.compile(r"""["'](proxylab(?:\.\w+)+)["']""")
_SEES_ANY = re.compile(r"import_module|sys\.executable|parents\[[1-9]|subprocess|proxylab[\w.]*\.__file__")
_LOADS = {
    "lab/proxylab/binaries/commands.py": re.compile(r"lab/proxylab/binaries/guard\.py$"),
    "lab/proxylab/cli/verbs.py": re.compile(r"lab/proxylab/(cli|features)/"),
    "lab/proxylab/engines/node_mode.py": re.compile(r"lab/proxylab/engines/embedded/\w+/node\.py$"),
}
"""The modules of the product that load or start others by a name or path that is put together, and which these are.

All others are named in their texts.
"""
_MODULE_SEES_ANY = re.compile(r"import_module")
_DATA = re.compile(r"""\s*/\s*f?"(scenarios|tests/golden|tests"\s*/\s*"golden)\b""")
_READS_SCENARIOS = re.compile(r"""scenarios["'/]|\bSCENARIOS\b""")
_READS_CATALOGUE = re.compile(r"""["'/]catalogue["'/]""")
_ROOT = re.compile(r"\bROOT\b(?P<made> = Path\(__file__\)(\.resolve\(\))?\.parents\[\d\]$)?", re.MULTILINE)
_PARENTS = re.compile(r"\(?Path\(__file__\)(\.resolve\(\))?\.parents\[\d\]\)?")
_SEES_DATA = {
    f"tests/support/{name}.py"
    for name in ("broken_scenarios", "changes", "golden_words", "oracle_agreement", "scenario_index")
}
"""They look for the project's folder, and read scenarios and goldens there, or ask git what changed."""
_FOR_READERS = re.compile(r"(docs|\.ci|\.github)/|(tests/)?[^/]*\.md$|(dev|tox\.ini)$")
"""Only what looks for the project's folder sees these files."""


def unreached(root: Path, changed: Collection[str]) -> list[str]:
    """The test files that run as they did before these files changed."""
    code = {each for each in changed if each.endswith(".py")}
    other = {*changed} - code
    tests = [_in(root, path) for folder in _TESTS for path in sorted((root / folder).rglob("test_*.py"))]
    conftests = (root / "conftest.py", root / "tests/conftest.py")
    settings = {_in(root, path) for path in conftests}
    settings |= {_in(root, path) for folder in _TESTS for path in (root / folder).rglob("conftest.py")}
    by = importers(root, {*tests, *settings, *code})
    of_every_test = settings | {file for file, their in by.items() if file != ANY and not their.isdisjoint(settings)}
    of_every_test -= {each for each in of_every_test if each.startswith("lab/")}  # any run shows whether they load
    scenarios = [each for each in other if each.startswith("scenarios/")]
    if not of_every_test.isdisjoint(code) or not all(map(_FOR_READERS.match, other - {*scenarios})):
        return []
    found = reached_by(by, [*code, ANY, *([SCENARIOS] if scenarios else [])]) if code or other else set()
    return [each for each in tests if each not in found]


def importers(root: Path, further: Iterable[str]) -> Mapping[str, set[str]]:
    """The files that import each file, directly; of modules, and of further files."""
    files = {_in(root, path) for folder in _IMPORTED_FROM for path in (root / folder).rglob("*.py")} | {*further}
    known = {name: file for file in files if (name := _name(file))}
    by = defaultdict[str, set[str]](set)
    for file in files:
        path = root / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""  # a change may take a file away
        for name in known.keys() & {*_loaded(text)}:
            by[known[name]].add(file)
        for loaded in filter(_LOADS[file].match, files) if file in _LOADS else ():
            by[loaded].add(file)
        if _sees_any(file, text):
            by[ANY].add(file)
        if (_READS_CATALOGUE if file.startswith("lab/") else _READS_SCENARIOS).search(text):
            by[SCENARIOS].add(file)
    return by


def reached_by(by: Mapping[str, set[str]], files: Iterable[str]) -> set[str]:
    """The files, and all that import one of them, directly or through others."""
    found, ways = set[str](), [*files]
    while ways:
        found.add(way := ways.pop())
        ways += by.get(way, set()) - found
    return found


def _sees_any(file: str, text: str) -> bool:
    """Whether what this file does may depend on any other. Scenarios and goldens are no code."""
    if file.startswith("lab/"):
        return file not in _LOADS and bool(_MODULE_SEES_ANY.search(text))
    uses = [each for each in _ROOT.finditer(text) if not each["made"]]
    is_for_others = not file.rpartition("/")[2].startswith("test_")
    if uses and not is_for_others and all(_DATA.match(text, each.end()) for each in uses):
        text = _ROOT.sub("", text)
    for each in _PARENTS.finditer(text):
        if _DATA.match(text, each.end()):
            text = text.replace(each[0], "")
    return file not in _SEES_DATA and bool(_SEES_ANY.search(text))


def _in(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _name(file: str) -> str:
    """The name by which others import a file, or nothing."""
    for folder in _IMPORTED_FROM:
        if file.startswith(folder):
            return file.removeprefix(folder).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return ""


def _loaded(text: str) -> Iterator[str]:
    """The dotted names that a text may load: packages above imported ones, too, and names in strings, as of patches."""
    for each in _IMPORT.finditer(_COMMENT.sub("", text)):
        if each["module"]:
            names = [each["module"], *(f"{each['module']}.{name}" for name in re.findall(r"\w+", each["names"]))]
        else:
            names = re.findall(r"[\w.]+", each["modules"])
        yield from (above for name in names for above in _and_above(name))
    yield from (above for name in _NAMED.findall(text) for above in _and_above(name))


def _and_above(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:number]) for number in range(1, len(parts) + 1))


def main() -> None:
    base = base_of(ROOT)
    left_out = unreached(ROOT, changed_since(base, ROOT)) if base else []
    if left_out:
        told = f"no change since {base[:10]} reaches {len(left_out)} files of tests without a kernel"
        sys.stderr.write(f"dev: {told}: './dev test --all' runs them\n")
    sys.stdout.writelines(f"--ignore={each}\n" for each in left_out)


if __name__ == "__main__":
    main()
