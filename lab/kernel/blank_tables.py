"""Tables of legacy iptables with nothing in them, told without a process.

Owns: ``blank_table``: what iptables-save prints of such a table.
Must not: put rules into words; where there is one, iptables-save is to be asked.

Every lab begins on a wire without rules, and its engine looks first what it finds in each of three tables. To learn so
by iptables-save costs more than to load the rules.
"""

import struct
from typing import Final

from lab.kernel.xtables import Kind, Snapshot, walk

__all__ = ["blank_table"]

_COUNTERS: Final = struct.Struct("=QQ")  # struct xt_counters: packets, bytes


def blank_table(table: str, snapshot: Snapshot | None) -> str | None:
    """The lines that ``iptables-save --counters`` prints of a table that has its policies only; ``None`` of another.

    Args:
        table: its name.
        snapshot: as it was read; ``None`` where the namespace has no such table, so that iptables-save may load it.
    """
    # One entry for each policy, and one that ends the table (xt_alloc_initial_table, net/netfilter/x_tables.c).
    if snapshot is None or snapshot.total != len(snapshot.ends) + 1:
        return None
    lines = [f"*{table}"]
    for kind, chain, at in walk(snapshot):
        if kind is not Kind.BOUNDARY:
            packets, size = _COUNTERS.unpack_from(snapshot.entries, at)
            lines.append(f":{chain} {'DROP' if kind is Kind.DROP_POLICY else 'ACCEPT'} [{packets}:{size}]")
    return "\n".join([*lines, "COMMIT", ""])
