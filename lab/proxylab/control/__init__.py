"""The servers and clients of a lab's control plane, on sockets in its namespaces.

The package owns the API server, DNS, health checks of load balancers, and the HTTP servers of nodes: health-check node
ports, and a proxy's own health and metrics. It programs no rules.
"""
