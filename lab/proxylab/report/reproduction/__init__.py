"""A failed probe as a script that needs no proxylab: ``repro.sh`` of a bundle.

Owns: the text of that script, made of plan, rules and evidence alone; or the reason why there is none.
Must not: run anything, or read what a lab might still hold.

``network`` and ``rules`` say what of the lab the probe can meet, ``outcome`` what is expected and was seen, in a line;
``programs`` holds what listens and sends, and ``script`` puts all together.
"""

from proxylab.report.reproduction.script import MOST_LINES, PRESENT, reproduction, unreproduced

__all__ = ["MOST_LINES", "PRESENT", "reproduction", "unreproduced"]
