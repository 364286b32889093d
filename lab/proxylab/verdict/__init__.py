"""Recorded observations judged against expectations, and the explanation of each verdict.

The room sends, receives and reads nothing, so a laptop can judge evidence from a CI run again.
"""
