"""Reports: results of runs, for people and for programs.

Owns: the text of a run on a terminal, its JSON document, and the exit code that stands for it.
Must not: judge, print, or know whether anybody can see colours.
"""

from lab.report.document import to_json
from lab.report.exits import exit_code
from lab.report.terminal import Painter, closing_lines, run_lines, scenario_lines

__all__ = ["Painter", "closing_lines", "exit_code", "run_lines", "scenario_lines", "to_json"]
