"""The table of rows: each has its source, the code uses each, and of rows with one subject one holds at a time."""

import ast
from itertools import product
from pathlib import Path

import pytest

import proxylab.oracle
from proxylab.cluster.configuration import Mode
from proxylab.oracle.rows import OracleRow, rows
from proxylab.scenario.promises import promises
from proxylab.scenario.words import Frontend

PACKAGE = Path(proxylab.oracle.__file__).parent
VERSIONS = [(1, minor) for minor in range(24, 41)]
FORWARDING = (Mode.IPTABLES, Mode.NFTABLES, Mode.IPVS)
FRONTENDS = {f"frontend-{via}" for via in Frontend}
"""The ids that the code makes from the words of frontends."""


def texts() -> set[str]:
    """Every string in the code of the package, without docstrings."""
    found: set[str] = set()
    for module in PACKAGE.glob("*.py"):
        tree = ast.parse(module.read_text())
        found |= {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    return found


@pytest.mark.parametrize("row", list(rows().values()), ids=lambda row: row.id)
def test_a_row_says_from_where_it_is(row: OracleRow) -> None:
    assert row.text.endswith(".")
    assert "  " not in row.text
    assert set(row.promises) <= promises().keys()
    assert bool(row.source) != bool(row.observed), "a document states the row, or it was observed on something"
    assert row.source.startswith("https://") or row.observed


def test_the_code_uses_each_row() -> None:
    assert {row.subject for row in rows().values()} - texts() - FRONTENDS == set()


def test_every_row_of_which_one_holds_says_what_it_means() -> None:
    subjects = [row.subject for row in rows().values()]
    assert [row.id for row in rows().values() if subjects.count(row.subject) > 1 and not row.then] == []
    assert [row.id for row in rows().values() if (row.modes or row.versions) and not row.then] == []


@pytest.mark.parametrize(("mode", "version"), list(product(FORWARDING, VERSIONS)), ids=str)
def test_of_the_rows_of_a_subject_one_holds_at_most(mode: Mode, version: tuple[int, int]) -> None:
    holding = [row.subject for row in rows().values() if row.holds(mode, version)]
    assert len(holding) == len(set(holding))


@pytest.mark.parametrize(
    ("mode", "version"),
    [(Mode.IPTABLES, each) for each in VERSIONS] + [(Mode.NFTABLES, each) for each in VERSIONS if each >= (1, 31)],
    ids=str,
)
def test_every_subject_has_a_row_in_the_modes_without_own_rules(mode: Mode, version: tuple[int, int]) -> None:
    holding = {row.subject for row in rows().values() if row.holds(mode, version)}
    assert holding == {row.subject for row in rows().values()}


@pytest.mark.parametrize("text", sorted(row.text for row in rows().values()))
def test_a_text_is_one_sentence(text: str) -> None:
    assert text.count(". ") == 0
