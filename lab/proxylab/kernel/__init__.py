"""The only room that makes namespaces, links, rules and children.

Owns: the sandbox, namespaces, netlink, sysctls, rule loading, capture, the launcher, capabilities.
Must not: know scenarios, services or verdicts. It makes a ``Plan`` real, one for one, and runs what it is told.
"""
