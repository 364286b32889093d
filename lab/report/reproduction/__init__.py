"""A probe, or what a step has led to, as a script that needs no proxylab: ``repro.sh`` of a bundle.

Owns: the text of that script, made of plan, rules and errand alone.
Must not: run anything, or read what a lab might still hold.

``wire`` writes the commands that rebuild the lab, ``case`` the document that tells ``programs/play.py`` what to send
and what to expect, and ``script`` puts them together. ``programs`` is no package: what lies there is not imported by
proxylab but copied into scripts, and uses python3's standard library alone.
"""

from lab.report.reproduction.script import PRESENT, reconstruction, reproduction

__all__ = ["PRESENT", "reconstruction", "reproduction"]
