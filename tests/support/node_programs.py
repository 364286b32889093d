"""Scenarios with programs of their own for nft and iptables: scripts that note how they ran, or abort."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.kernel.sandbox.iptables_links import PATH
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import Judgement

__all__ = ["ABORTS", "MARKER", "folder_for_all", "machine", "marks", "program", "scenario"]

MARKER: Final = "/run/marker"
"""In the private /run of a node: which commands a program of the scenario was."""


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that every user may enter, as commands of a lab need."""
    with TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def machine(name: str) -> str:
    path = shutil.which(name, path=PATH)
    if path is None:
        pytest.skip(f"needs {name}")
    return path


def program(folder: Path, name: str, body: str) -> str:
    """A script in the folder; ``$own`` is the name by which it runs."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nown=$(basename "$0")\n{body}\n')
    path.chmod(0o755)
    return str(path)


def scenario(programs: str, *, of_node: str = "", families: str = "[IPv4, IPv6]") -> Scenario:
    return parse_scenario(
        f"""\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: programs}}
spec:
  network: {{families: {families}}}
  programs: {programs or "{}"}
  nodes: {{node-a: {{programs: {of_node or "{}"}}}, node-b: {{}}}}
  pods:
    echo: {{nodes: [node-b], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  probes:
  - name: dialled
    from: client
    to: {{service: echo, via: clusterIP}}
    expect: {{outcome: delivered, source: preserved}}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{ipFamilyPolicy: PreferDualStack, selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
""",
        "programs.lab.yaml",
    )


def marks(choice: EngineChoice, given: Scenario) -> dict[str, str]:
    """What the program of each node noted, where everything passes."""
    with shared_session(choice) as session:
        lab = session.open(given)
        assert [lab.probe(each).overall for each in given.probes] == [Judgement.PASS] * len(given.probes)
        return {
            each.name: lab.execute(each.name, "sh", "-c", f"cat {MARKER} 2>/dev/null || true").stdout
            for each in given.nodes
        }


ABORTS: Final = """\
case "$*" in
*--check*) ;;
*-f*) echo "nft: evaluate.c:1: Assertion failed" >&2; kill -ABRT $$ ;;
esac
exec {} "$@\""""
"""The body of an nft that aborts where it loads a text, with the machine's nft for all else."""
