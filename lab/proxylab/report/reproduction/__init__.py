"""A failed probe as a script that needs no proxylab: ``repro.sh`` of a bundle, or the reason why there is none.

The text comes from plan, rules and evidence alone. ``network`` and ``rules`` select the part of the lab that the
probe's packets can meet, ``outcome`` writes the expected and observed results, ``programs`` holds the listener and the
sender, and ``script`` puts them together.
"""

from proxylab.report.reproduction.script import MOST_LINES, PRESENT, reproduction, unreproduced

__all__ = ["MOST_LINES", "PRESENT", "reproduction", "unreproduced"]
