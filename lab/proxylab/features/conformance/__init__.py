"""``proxylab conformance``: runs the catalogue on a proxy, and tables by theme what it keeps of Kubernetes' promises."""
