"""A live cluster, as kubectl prints it, becomes a scenario of its own Services.

Owns: the way from a printout (of ``kubectl get svc,endpointslices,pods,nodes -A``) to the text of a scenario, and the
list of what could not be carried over.
Must not: ask a cluster anything, or make anything.
"""
