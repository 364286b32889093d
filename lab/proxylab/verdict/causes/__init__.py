"""Why something failed: every cause, and the order in which they are tried (``causes.table``)."""
