"""The generated pages belong to this code. ``LAB_DOCS=write`` writes them again."""

import os
from collections.abc import Callable

import pytest
from catalogue_pages import capabilities_page, engines_page
from cli_page import cli_page
from conformance_page import conformance_page, next_release_page
from documents import ROOT
from e2e_reference import e2e_reference
from options_page import options_page
from oracle_reference import oracle_reference
from scenario_index import scenarios_page
from semantics_reference import semantics_reference
from unmet_rules_page import unmet_rules_page

from proxylab.cli.command import proxylab

PAGES = {
    "cli": lambda: cli_page(proxylab),
    "engines": engines_page,
    "pytest": options_page,
    "capabilities": capabilities_page,
    "scenarios": scenarios_page,
    "conformance": conformance_page,
    "next-release": next_release_page,
    "oracle": oracle_reference,
    "semantics": semantics_reference,
    "e2e": e2e_reference,
    "unmet-rules": unmet_rules_page,
}


@pytest.mark.parametrize(("name", "make"), PAGES.items(), ids=PAGES)
def test_the_page_is_of_this_code(name: str, make: Callable[[], str]) -> None:
    page = ROOT / "docs" / "reference" / f"{name}.md"
    made = make()
    if os.environ.get("LAB_DOCS") == "write":
        page.write_text(made)
    assert page.read_text() == made, "LAB_DOCS=write ./dev lint"


def test_they_are_linked_from_the_contents() -> None:
    contents = (ROOT / "docs" / "README.md").read_text()
    assert [name for name in PAGES if f"(reference/{name}.md)" not in contents] == []
