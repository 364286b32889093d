"""Tables of legacy iptables without rules, told without a process.

Owns: ``blank_table``: what iptables-save prints of such a table.
Must not: put rules into words; where there is one, iptables-save is to be asked.

Every lab begins on a wire without rules, and its engine looks first what it finds in each of three tables. Afterwards
there is no rule in mangle: all that a Service proxy has there is the canary, an empty chain. To learn so by
iptables-save costs more than to load the rules.
"""

from lab.kernel.xtables import COUNTERS, Kind, Snapshot, walk

__all__ = ["blank_table"]


def blank_table(table: str, snapshot: Snapshot | None) -> str | None:
    """The lines that ``iptables-save --counters`` prints of a table in which no chain has a rule; ``None`` of another.

    Args:
        table: its name.
        snapshot: as it was read; ``None`` where the namespace has no such table, so that iptables-save may load it.
    """
    if snapshot is None:
        return None
    policies, chains = [], []
    for kind, chain, at in walk(snapshot):
        match kind:
            case Kind.RULE:
                return None
            case Kind.BOUNDARY:
                chains.append(chain)
            case _:
                packets, size = COUNTERS.unpack_from(snapshot.entries, at)
                word = "DROP" if kind is Kind.DROP_POLICY else "ACCEPT"
                policies.append(f":{chain} {word} [{packets}:{size}]")
    # A user's chain has a head and a RETURN; what ends the table is one more (iptables, libiptc/libiptc.c).
    mine = [f":{chain} - [0:0]" for chain in chains[:-1:2]]
    return "\n".join([f"*{table}", *policies, *mine, "COMMIT", ""])
