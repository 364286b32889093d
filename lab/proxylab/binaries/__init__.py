"""Obtains the kube-proxy that a lab runs: the sources of binaries, the cache, and the choice among them.

All of it happens outside the sandbox, before a lab process starts; the room runs a kube-proxy only for its version.
"""
