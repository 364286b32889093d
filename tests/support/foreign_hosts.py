"""Scenarios with the rules of real hosts in every node: those of Docker, flannel and firewalld, from ``leftovers``.

The rules stand in the scenarios of that folder. Here each node of another scenario gets them, with its own part of the
pod network in place of the one there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from documents import ROOT

__all__ = ["PROGRAMS", "under_rules_of"]

_LEFTOVERS = ROOT / "scenarios" / "leftovers"

PROGRAMS: Mapping[str, tuple[str, str]] = {
    "Docker and flannel": ("rules-of-docker-and-flannel", "node-a"),
    "firewalld on nftables": ("rules-of-firewalld", "node-a"),
}
"""The programs, each with the scenario and the node whose rules are theirs."""

_OWN_PART = "10.244.0.0/24"


def under_rules_of(program: str, file: Path) -> str:
    """The text of a scenario file whose nodes have the rules of a program."""
    name, source = PROGRAMS[program]
    rules = _documents(_LEFTOVERS / f"{name}.lab.yaml")[0]["spec"]["nodes"][source]["leftovers"]
    first, *others = _documents(file)
    nodes: dict[str, Any] = {each: dict(node or {}) for each, node in first["spec"]["nodes"].items()}
    for number, node in enumerate(nodes.values()):
        own = f"10.244.{number}.0/24"
        node["leftovers"] = {tool: text.replace(_OWN_PART, own) for tool, text in rules.items()}
    first["spec"]["nodes"] = nodes
    return yaml.safe_dump_all([first, *others], sort_keys=False)


def _documents(file: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]
