"""A control plane of real Kubernetes in a lab, which people use by kubectl.

``control_plane`` runs the program (``proxylab.binaries.control_plane``) in a network namespace of its own. ``writer``
puts the scenario's objects into its API, and ``mirror`` keeps the store of the lab, which all proxies follow, equal to
it. So an engine needs to know nothing of the API server whose Services it programs, and the barrier works as ever.
"""
