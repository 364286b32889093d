"""The Kubernetes side of a lab: objects, allocation, endpoint slices, and a store that can be watched.

Owns: what an API server and its controllers would hold for the scenario.
Must not: open sockets, start processes, or know how packets are sent (this room is pure).
"""
