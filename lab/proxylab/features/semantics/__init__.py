"""``proxylab semantics``: lists what Kubernetes promises for Services, and which probes and mutants prove each."""
