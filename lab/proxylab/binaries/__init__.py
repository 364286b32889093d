"""Obtains the programs that a lab runs, kube-proxy first: sources of binaries, the cache, and the choice among them.

All of it happens outside the sandbox, before a lab process starts; the package runs a kube-proxy only for its version.
"""
