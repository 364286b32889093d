"""The reference page of the kinds of kube-proxy's rules that no probe of the catalogue meets."""

from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["UNMET", "unmet_rules_page"]

UNMET: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("unmet_rules.yaml").read_text(encoding="utf-8"))

_HEAD: Final = """\
# Rules that no probe meets

`proxylab run scenarios --engine kube-proxy/iptables,kube-proxy/nftables --rule-coverage` ran all scenarios of the
catalogue on the real kube-proxy, and noted which of its rules packets of probes met, and which elements of its sets
and maps. Rules that differ in names, addresses, ports and numbers only are of one kind. A kind that no probe of any
scenario meets has its reason here. [Which rules does my scenario prove?](../how-to/which-rules-a-scenario-proves.md)
says what "met" means.
"""


def unmet_rules_page() -> str:
    """The page."""
    lines = [_HEAD]
    for mode, found in UNMET.items():
        unmet: dict[str, str] = found["unmet"]
        met = found["kinds"] - len(unmet)
        lines += [f"## kube-proxy {found['version']}, mode {mode}", ""]
        lines += [f"Probes meet {met:,} of {found['kinds']:,} kinds of rules.", ""]
        if unmet:
            lines += ["| kind | why no probe meets it |", "| --- | --- |"]
            lines += [f"| `{kind.replace('|', chr(92) + '|')}` | {reason} |" for kind, reason in unmet.items()] + [""]
    return "\n".join(lines)
