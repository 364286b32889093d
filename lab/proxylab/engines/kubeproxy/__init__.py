"""The real kube-proxy, as Kubernetes builds it, in every node.

Owns: how it is configured, started, waited for and stopped.
Must not: obtain its binary (``proxylab.binaries`` does, outside the sandbox), or look into it.
"""
