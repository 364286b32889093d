"""The engine of the lab's own: pure renderers, one per proxy mode, and the loop that keeps the kernel in step.

Owns: what kube-proxy would program for the objects in the store, with kube-proxy's names, order and comments.
Must not: run processes or touch the kernel (a ``RuleLoader`` that is handed in does).

Shared by all modes: ``ports`` (what a Service offers, normalised), ``categories`` (which endpoints count on this node),
``settings``, ``node``, ``loader`` and ``sync``. A mode is a package beside them.
"""
