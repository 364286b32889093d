"""A run as a page for a browser: one file, which needs no other and asks nobody for anything.

Owns: ``page``, and ``Entry``, of which it is made.
Must not: write files, or gather results; the command line and pytest do, each in its own way.
"""

from proxylab.report.html.entry import Entry, Heading, entries_of, entry, message
from proxylab.report.html.page import page

__all__ = ["Entry", "Heading", "entries_of", "entry", "message", "page"]
