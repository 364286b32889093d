"""Verbs that have several modules of their own: a package each, whole in one place.

``verb.py`` is the command line, ``runs.py`` asks a lab, and the other modules are pure. A feature uses the packages
below, and they know nothing of it. What a second feature needs moves down into one of them.
"""
