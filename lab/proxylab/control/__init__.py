"""What engines and pods talk to, on sockets that belong to a node's namespace.

Owns: HTTP servers: the health-check node ports of Services, and a proxy's own health and metrics.
Must not: program rules, or know scenarios.
"""
