"""The things under test: what turns Services and EndpointSlices into rules in a node.

Owns: the ``Engine`` protocol and its implementations.
Must not: know scenarios, probes or verdicts.
"""
