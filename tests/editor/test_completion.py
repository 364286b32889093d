"""Scenarios in an editor: yaml-language-server reads our schema and offers keys, tells of them, and finds mistakes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from language_server import LanguageServer

HERE = Path(__file__).resolve().parent
SCHEMA = HERE.parents[1] / "lab" / "proxylab" / "scenario" / "schema.json"
SCENARIO = (HERE.parent / "golden" / "scenario" / "base.lab.yaml").read_text(encoding="utf-8")
CURE = "./dev brings npm, which must reach its registry once"


pytestmark = pytest.mark.editor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server is installed, as ``package-lock.json`` has it, and where the documents are said to be."""
    folder = tmp_path_factory.mktemp("editor")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, request: pytest.FixtureRequest) -> Iterator[LanguageServer]:
    """The server of this module. It is the one that editors start, with nothing of ours in it."""
    search = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    npm, node = shutil.which("npm", path=search), shutil.which("node", path=search)
    done = None
    if npm is not None and node is not None:
        options = [
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefer-offline",
            "--fetch-retries=1",
            "--loglevel=error",
        ]
        environment = {**os.environ, "PATH": search}
        done = subprocess.run(
            [npm, "ci", *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    if done is None or done.returncode != 0 or node is None:
        why = "there is no npm" if done is None else done.stderr.strip()
        if request.config.getoption("lab_required", default=False):
            pytest.fail(f"yaml-language-server could not be installed: {why}; {CURE}")
        pytest.skip(f"needs yaml-language-server: {why}; {CURE}")
    program = folder / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
    with LanguageServer.started([node, str(program)], folder, {SCHEMA.as_uri(): "*.lab.yaml"}) as started:
        yield started


def netns_name(text: str, marked: str) -> tuple[int, int]:
    """Line and column of the ``|`` in a piece of the text."""
    before = text[: text.index(marked.replace("|", "")) + marked.index("|")]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


def test_a_scenario_of_the_tree_has_no_fault(server: LanguageServer, folder: Path) -> None:
    assert server.open(folder / "good.lab.yaml", SCENARIO) == []


def test_the_first_line_of_a_scenario_leads_to_the_schema_without_settings(server: LanguageServer) -> None:
    file = HERE.parents[1] / "scenarios" / "clusterip" / "from-a-pod.lab.yaml"
    text = file.read_text(encoding="utf-8")
    assert server.open(file.with_suffix(".yml"), text) == []
    (fault,) = server.open(file.with_name("unwritten.yml"), text.replace("probes:", "probse:"))
    assert "probse" in fault["message"]


@pytest.mark.parametrize(
    ("old", "new", "at", "offered"),
    [
        ("  hosts: {outside: {}}\n", "  hosts: {outside: {}}\n  \n", "outside: {}}\n  |\n", {"matrix", "steps"}),
        ("    node-b: {}\n", "    node-b:\n      \n", "node-b:\n      |\n", {"labels", "sysctls", "uplinks"}),
        ("    from: client\n", "    from: client\n    \n", "client\n    |\n", {"send", "except"}),
        (
            "  hosts: {outside: {}}\n",
            "  steps:\n  - name: one\n    expect:\n      queries:\n        \n",
            "queries:\n        |\n",
            {"lost", "backend", "delay"},
        ),
        ("via: clusterIP", "via: ", "via: |}", {"clusterIP", "nodePort", "externalIP", "loadBalancerIP"}),
        ("outcome: delivered", "outcome: ", "outcome: |,", {"delivered", "rejected", "refused", "dropped"}),
        ("  selector: {app: echo}\n", "  selector: {app: echo}\n  \n", "echo}\n  |\n", {"clusterIP", "type"}),
    ],
    ids=["spec", "a node", "a probe", "a stream in a step", "a front", "an outcome", "a Service"],
)  # fmt: skip
def test_keys_and_words_are_offered(
    server: LanguageServer, folder: Path, old: str, new: str, at: str, offered: set[str]
) -> None:
    text = SCENARIO.replace(old, new)
    file = folder / f"{abs(hash(at))}.lab.yaml"
    server.open(file, text)
    found = server.complete(file, *netns_name(text, at))
    assert offered <= found.keys()
    if not at.startswith(("via", "outcome")):
        for key in offered:
            assert "documentation" in found[key], key


def test_a_key_tells_what_it_is_for(server: LanguageServer, folder: Path) -> None:
    file = folder / "hover.lab.yaml"
    server.open(file, SCENARIO)
    assert "How many pods there are" in server.hover(file, *netns_name(SCENARIO, "repli|cas"))
    assert "The frontend to dial" in server.hover(file, *netns_name(SCENARIO, "v|ia: clusterIP"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("via: clusterIP", "via: clusterip", "clusterIP"),
        ("replicas: 2", "replicas: two", "integer"),
        ("hosts:", "host:", "host"),
        ("port: 80\n", "port: 80000\n", "65535"),
    ],
)
def test_a_wrong_value_is_marked_where_it_stands(
    server: LanguageServer, folder: Path, old: str, new: str, said: str
) -> None:
    text = SCENARIO.replace(old, new)
    faults = server.open(folder / f"{abs(hash(new))}.lab.yaml", text)
    lines = {fault["range"]["start"]["line"] for fault in faults}
    assert netns_name(text, f"|{new}")[0] in lines
    assert any(said in fault["message"] for fault in faults), faults
