"""Reports: results of runs, for people and for programs.

Owns: the text of a run on a terminal, its JSON document, and the exit code that stands for it.
Must not: judge, print, or know whether anybody can see colours; or import its modules here: ``plan`` and ``graph`` draw
with some of them, and never load what a result is made of.
"""
