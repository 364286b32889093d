"""The Kubernetes side of a lab: objects, allocation, endpoint slices, DNS names, and a store with watches.

The package computes what an API server and its controllers would hold for the scenario. It is pure: it opens no
sockets and starts no processes.
"""
