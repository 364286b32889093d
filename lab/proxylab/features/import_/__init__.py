"""``proxylab import``: kubectl's output of a live cluster becomes a scenario with the cluster's Services.

The package turns the output of ``kubectl get svc,endpointslices,pods,nodes -A`` into the text of a scenario, and lists
what the scenario leaves out. It talks to no cluster.
"""
