"""proxylab: Kubernetes Service proxies, proven on a real kernel."""

__version__ = "0.1.0"
