"""Mutants of what a proxy is shown: objects of the cluster, their later events, and the proxy's configuration.

Everything here is pure: which mutants there are, what each makes of an object, which change nothing, and the store that
the proxies of a lab follow in place of the true one.
"""
