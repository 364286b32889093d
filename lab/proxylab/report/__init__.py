"""Reports of a run, for people and for programs: terminal text, JSON, HTML and bundles of evidence.

The package imports none of its modules: a verb loads those that it needs.
"""
