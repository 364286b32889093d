"""Judging: recorded observations against expectations.

Owns: what counts as evidence, verdicts and their explanation.
Must not: send, receive, or read anything: evidence from somebody's CI can be judged again on a laptop.
"""
