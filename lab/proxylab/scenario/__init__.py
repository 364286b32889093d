"""Scenario files: YAML with positions becomes a typed, frozen ``Scenario``; every mistake is told at once.

Owns: the file format, manifests inside it, and the words in which mistakes are told.
Must not: open sockets, start processes, import scapy or pyroute2, or allocate addresses (``plan`` does).
"""
