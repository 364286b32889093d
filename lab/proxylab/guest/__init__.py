"""A second kernel for labs: the lab process and its sandbox run in a guest, on the machine's own files."""
