"""Reports of a run, for people and for programs: terminal text, JSON, HTML and bundles of evidence.

Modules here are not imported by the package: ``plan`` and ``graph`` draw with some of them and never load the rest.
"""
