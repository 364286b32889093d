"""The package ``rules`` alone reads rules. Where rooms that meet rules use patterns for other texts, it is listed."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "lab" / "proxylab"
ROOMS = ("engines/embedded", "evidence", "kernel/netfilter", "oracle", "report/reproduction", "traffic", "verdict")

OF_OTHER_TEXTS = {
    "engines/embedded/iptables/restore.py": "the number of a refused line, in an error of iptables-restore",
    "engines/embedded/nftables/transaction.py": "the number of a refused line, in an error of nft",
    "kernel/netfilter/foreign_tables.py": "netlink attributes",
    "report/reproduction/outcome.py": "the line that the script prints of a flow",
    "traffic/answer.py": "an HTTP header",
    "verdict/causes/table.py": "a sentence of the report",
    "verdict/drops.py": "names of the kernel's counters",
}
OF_NAMES = {
    "engines/embedded/iptables/mutants.py": "the hash in a chain's name, and marks",
    "traffic/foreign.py": "the hash in a chain's name",
    "verdict/causes/foreign_rules.py": "the Service in a chain's name",
    "verdict/causes/settings.py": "the name of a firewall's chain",
    "verdict/counted_rules.py": "the Service in a chain's name",
}
"""What a name means is the proxy's, not the tool's."""


def uses_patterns(module: Path) -> bool:
    """Whether it uses patterns, or splits text as a shell does, and as iptables prints it."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id == "re" or (node.value.id, node.attr) == ("shlex", "split"))
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    )


def test_no_other_module_reads_rules_by_patterns() -> None:
    modules = [module for room in ROOMS for module in (PACKAGE / room).rglob("*.py")]
    assert len(modules) > 150
    found = {str(module.relative_to(PACKAGE)) for module in modules if uses_patterns(module)}
    assert found == {*OF_OTHER_TEXTS, *OF_NAMES}
