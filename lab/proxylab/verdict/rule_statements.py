"""What a rule does: its text, as iptables-save or nft prints it, without the words of matches, names and comments.

``ct status dnat accept`` translates nothing, and a jump to a chain that is called ``ufw-reject-input`` rejects nothing.
"""

import re
from functools import lru_cache
from typing import Final

_QUOTED: Final = r'"(?:\\.|[^"\\])*"'
_NO_STATEMENT: Final = re.compile(
    rf"(?:--(?:comment|(?:nf)?log-prefix|match-set|name) |\bcomment )?{_QUOTED}"
    r"|--(?:comment|(?:nf)?log-prefix|match-set|name) \S+"
    r"|\bct status (?:!= )?(?:& (?:\([^)]*\)|\S+) \S+ \S+|\{[^}]*\}|\S+)"
    r"|@\S+"
    r"|\b(?:jump|goto) \S+"
    r"|^-A \S+"
    r"|-[jg] [a-z]\S*"  # targets of iptables-extensions(8) have capital letters, so this is a chain
)


@lru_cache(maxsize=4096)  # a lab asks of the same rules for all of its probes
def statements(text: str) -> str:
    """The text of a rule without what only matches, names or explains."""
    return _NO_STATEMENT.sub("", text).strip()
