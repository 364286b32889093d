"""The reference page of the kinds of kube-proxy's rules: a scenario that meets each, or why none does."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml
from documents import ROOT

__all__ = ["RECORD", "UNMET", "kinds_of", "unmet_rules_page"]

RECORD: Final = Path(__file__).with_name("unmet_rules.yaml")
UNMET: Final[dict[str, Any]] = yaml.safe_load(RECORD.read_text(encoding="utf-8"))

_HEAD: Final = """\
# Rules that no probe meets

`proxylab run scenarios --engine kube-proxy/iptables --engine kube-proxy/nftables --rule-coverage` ran all scenarios of
the catalogue on the real kube-proxy, and noted which of its rules packets of probes met, and which elements of its sets
and maps. Rules that differ in names, addresses, ports and numbers only are of one kind. Each kind has a scenario here
that meets it, or the reason why none does.
[Which rules does my scenario prove?](../how-to/which-rules-a-scenario-proves.md#rules-that-no-packet-meets)
says what "met" means.
"""


def kinds_of(documents: Iterable[dict[str, Any]], mode: str) -> dict[str, str]:
    """The kinds of rules of a mode in reports of runs, each with the first scenario that meets it, or nothing."""
    found: dict[str, set[str]] = {}
    for scenario in (each for document in documents for each in document["scenarios"]):
        file = str(Path(scenario["file"]).absolute()).partition("scenarios/")[2].removesuffix(".lab.yaml")
        for each in scenario["rules"]["kinds"] if scenario["rules"] else ():
            if each["mode"] == mode:
                found.setdefault(each["kind"], set()).update({file} if each["met"] else ())
    return {kind: min(files, default="") for kind, files in sorted(found.items())}


def unmet_rules_page() -> str:
    """The page."""
    lines = [_HEAD]
    for mode, found in UNMET.items():
        met = {kind: scenario for kind, scenario in found["kinds"].items() if scenario}
        lines += [f"## kube-proxy {found['version']}, mode {mode}", ""]
        lines += [f"Probes meet {len(met):,} of {len(found['kinds']):,} kinds of rules.", ""]
        for title, rows in (
            ("why no probe meets it", found["reasons"]),
            ("met in", {kind: _link(scenario) for kind, scenario in met.items()}),
        ):
            if rows:
                lines += [f"| kind | {title} |", "| --- | --- |"]
                lines += [f"| `{kind.replace('|', chr(92) + '|')}` | {each} |" for kind, each in rows.items()] + [""]
    return "\n".join(lines)


def _link(scenario: str) -> str:
    file = f"scenarios/{scenario}.lab.yaml"
    return f"[{scenario}](../../{file})" if (ROOT / file).exists() else scenario
