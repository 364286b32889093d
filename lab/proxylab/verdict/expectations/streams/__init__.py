"""The expectations of streams in one step.

A step lasts from its change until its streams are settled, before the next step. It begins with a packet of each stream
just before the change. Counts and delays cover the whole step: a packet that the change costs belongs to its step.
``backend`` and ``source`` are about the packets sent after the step's wait, at least five of each stream.
"""
