"""Pydantic models of what an author may write, for the parts of the format that the model does not declare itself.

These are the document and its list of keys, senders, targets and packets, steps and changes, matrices and conditions,
and Kubernetes manifests. All other keys are in the ``Declared`` records of the model (``proxylab.scenario.keys``). A
shape sees one value at a time; ``proxylab.scenario.load`` and its neighbours compare values.
"""
