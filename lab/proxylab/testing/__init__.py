"""Tools for tests of scenarios: hypothesis strategies, a fuzzer of the reader, and a kernel in memory.

``scenarios`` needs hypothesis, which ``proxylab[dev]`` installs. No other package of ``proxylab`` imports this one.
"""
