"""What a Service must do, by Kubernetes' own documents: ``Oracle`` answers for one moment of a cluster.

It imports no engine, no verdict and no kernel, so that a fault of an engine cannot be a fault of the oracle, too. Each
part of an answer names the rows of ``rows.yaml`` from which it follows, and a row names the document that says so.
Where no row decides, the answer says why it is outside the oracle's reach: a guess would be the worst fault here.
"""
