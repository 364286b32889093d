"""The real kube-proxy in every node: its configuration, its process, and how the lab waits for it.

``proxylab.binaries`` obtains the binary, outside the sandbox.
"""
