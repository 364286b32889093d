"""A table without rules is told as iptables-save tells it; of any other nothing is said."""

from table_entries import ACCEPT, BOTH, DROP, RETURN, entry, error, verdict

from lab.ip import Family
from lab.kernel.blank_tables import blank_table
from lab.kernel.xtables import Snapshot


def filter_table(family: Family, *more: bytes) -> Snapshot:
    """INPUT that accepts, OUTPUT that drops, and what else is between them and the end."""
    parts = [
        entry(family, verdict(ACCEPT), packets=2),
        entry(family, verdict(DROP)),
        *more,
        entry(family, error("ERROR")),
    ]
    chains = {0: "INPUT", len(parts[0]): "OUTPUT"}
    return Snapshot(family, chains, chains, b"".join(parts), len(parts))


@BOTH
def test_policies_alone_are_written_with_their_counters(family: Family) -> None:
    text = "*filter\n:INPUT ACCEPT [2:120]\n:OUTPUT DROP [0:0]\nCOMMIT\n"
    assert blank_table("filter", filter_table(family)) == text


@BOTH
def test_chains_without_rules_are_written_behind_the_policies(family: Family) -> None:
    chains = [
        part for name in ("MINE", "YOURS") for part in (entry(family, error(name)), entry(family, verdict(RETURN)))
    ]
    text = "*filter\n:INPUT ACCEPT [2:120]\n:OUTPUT DROP [0:0]\n:MINE - [0:0]\n:YOURS - [0:0]\nCOMMIT\n"
    assert blank_table("filter", filter_table(family, *chains)) == text


@BOTH
def test_a_rule_is_for_iptables_save(family: Family) -> None:
    rule = entry(family, verdict(ACCEPT))
    chain = entry(family, error("MINE")), rule, entry(family, verdict(RETURN))
    assert blank_table("filter", filter_table(family, *chain)) is None


def test_what_is_not_there_is_for_iptables_save() -> None:
    assert blank_table("filter", None) is None
