"""The pages that are made from the code are those of this code. ``LAB_DOCS=write`` makes them anew."""

import os

from cli_page import cli_page
from documents import ROOT

from lab.cli import proxylab

PAGE = ROOT / "docs" / "reference" / "cli.md"


def test_the_page_of_the_command_line() -> None:
    made = cli_page(proxylab)
    if os.environ.get("LAB_DOCS") == "write":
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "LAB_DOCS=write ./dev pytest tests/docs"
