"""``proxylab mutate``: changes each rule, and each object that a proxy is shown, and reports which probe notices.

``runs`` runs the scenario on every mutant. Which mutants of rules there are is up to each mode of the engine; those of
objects are in ``proxylab.mutate``, which the lab shows to its proxies.
"""
