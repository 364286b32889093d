"""Recorded observations judged against expectations, with the reasons and the cause of each failure.

``report.failure_text`` writes both down.

The package sends, receives and reads nothing, so a laptop can judge evidence from a CI run again.
"""
