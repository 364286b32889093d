"""Recorded observations judged against expectations, with the reasons and the cause of each failure.

``report.failure_text`` writes both down. To read the judge, begin with ``judge`` and follow one probe. Each module
rests on those above it:

* observations: ``proxylab.evidence``, as the lab recorded them
* flows and their stops: ``flows`` sorts observations by flow, and says by the taps what became of each
* hops: ``hops`` adds second translations, copies, and what links lost
* rules: ``counted_rules`` of the engine, ``foreign`` rules, and the stacks of nodes in ``drops``
* doubts: ``doubts`` has the reasons to distrust evidence, and silence
* the case: ``case`` holds all of these for one probe, each worked out once; ``step_case`` for a step and its streams
* verdicts: ``findings`` weighs what speaks against an expectation; ``expectations`` has a module for each
* causes: ``causes`` finds the one sentence that explains a failure

The package sends, receives and reads nothing, so a laptop can judge evidence from a CI run again.
"""
