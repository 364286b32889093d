"""Every command in the pages does what they say. ``LAB_DOCS=write`` puts what is printed into them."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from documents import ROOT, Command, File, matches, pages, play, steps, untyped, with_outputs

PAGES = [page for page in pages() if any(isinstance(each, Command) for each in steps(page.read_text()))]

# What a test may not do, or does anyway: change the machine, or run itself.
NOT_TYPED = ("sudo ", "./dev lab", "./dev test", "git clone ", "cd ")
LACKS_A_CAPABILITY = 4
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")

DEV = """#!/bin/sh
exec "$@"
"""
# No live cluster is at hand: what one prints stands on the page, as the file that the command would have written.
KUBECTL = """#!/bin/sh
[ "$*" = "get svc,endpointslices,pods,nodes -A -o yaml" ] && echo '{apiVersion: v1, kind: List, items: []}'
"""
# They need a checkout of kubernetes, a gigabyte; tests/engines/test_checkout.py makes one, and traces through it.
NOT_TYPED_ON = {"README.md", "docs/how-to/test-your-kube-proxy.md"}
COMMANDS = ("./dev ", "docker ", "git ", "kubectl ", "proxylab ", "pytest ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is to a page what the clone is to its reader."""
    for name in ("scenarios", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    for name, text in {"dev": DEV, "bin/kubectl": KUBECTL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_prints_what_the_page_says(page: Path, folder: Path) -> None:
    bin_folder = Path(sys.executable).parent
    if shutil.which("proxylab", path=str(bin_folder)) is None:
        pytest.skip("proxylab is not installed beside this Python; run the tests with ./dev test")
    text = page.read_text()
    outputs: list[tuple[Command, str]] = []
    wrong = []
    for step in steps(text):
        if isinstance(step, File):
            (folder / step.name).write_text(step.text)
            continue
        if step.text.startswith(NOT_TYPED):
            continue
        environment = {
            "PATH": f"{folder / 'bin'}:{bin_folder}:{os.environ['PATH']}",
            "COLUMNS": "80",
            "XDG_RUNTIME_DIR": str(folder),
            "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:randomly",
        }
        done = play(step, folder, environment)
        if done.returncode == LACKS_A_CAPABILITY:
            pytest.skip(f"line {step.line}: {done.stdout}")
        outputs.append((step, done.stdout))
        held = matches(step.output, done.stdout.splitlines()) if step.output else done.returncode == 0
        if not held:
            wrong.append(f"line {step.line}: $ {step.text}\n(exit {done.returncode})\n{done.stdout}")
    if os.environ.get("LAB_DOCS") == "write":
        page.write_text(with_outputs(text, outputs))
    assert not wrong, "\n".join(wrong)


def test_no_command_stands_where_it_is_not_typed() -> None:
    found = {
        str(page.relative_to(ROOT))
        for page in pages()
        for language, body in untyped(page.read_text())
        if language != "yaml" and any(line.startswith(COMMANDS) for line in body.splitlines())
    }
    assert found == NOT_TYPED_ON


def test_the_pages_have_commands() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "tutorial.md"}


def test_every_link_between_pages_leads_somewhere() -> None:
    links = [(page, target) for page in pages() for target in LINK.findall(page.read_text())]
    assert len(links) > 10
    assert [f"{page}: {target}" for page, target in links if not (page.parent / target).exists()] == []
