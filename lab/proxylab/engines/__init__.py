"""Service proxies, which are the things under test: they turn Services and EndpointSlices into rules on a node.

The package owns the ``Engine`` protocol and its implementations. It knows no scenario, probe or verdict.
"""
