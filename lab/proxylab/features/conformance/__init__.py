"""``proxylab conformance``: runs the catalogue on a proxy, and says by theme which of Kubernetes' promises it keeps."""
