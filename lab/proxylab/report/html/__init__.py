"""A run as one self-contained HTML file; the command line and the pytest plugin gather its entries and write it."""

from proxylab.report.html.entry import Heading, PageEntry, entries_of, entry, message
from proxylab.report.html.page import page, read_page

__all__ = ["Heading", "PageEntry", "entries_of", "entry", "message", "page", "read_page"]
