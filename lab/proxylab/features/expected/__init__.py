"""``proxylab expected``: prints what must become of a scenario's probes by Kubernetes' documents, and runs nothing."""
