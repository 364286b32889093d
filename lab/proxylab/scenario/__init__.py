"""Scenario files: read YAML as a typed, frozen ``Scenario``, or report every mistake at once, with its position.

The package owns the file format, the manifests in it, and the messages. It is pure: it opens no sockets and starts no
processes. ``plan`` allocates addresses.
"""
