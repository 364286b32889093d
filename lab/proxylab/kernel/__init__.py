"""The only room that creates namespaces, links, rules and child processes.

It builds a ``Plan`` in the kernel, one for one, and runs the commands, captures and traces that other rooms request. It
knows no scenarios, Services or verdicts.
"""
