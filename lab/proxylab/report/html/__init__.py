"""A run as one self-contained HTML file. The command line and the pytest plugin gather the entries and write the file."""

from proxylab.report.html.entry import Entry, Heading, entries_of, entry, message
from proxylab.report.html.page import page

__all__ = ["Entry", "Heading", "entries_of", "entry", "message", "page"]
