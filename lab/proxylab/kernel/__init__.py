"""The only package that creates namespaces, links and rules, and that starts processes inside a lab.

It builds a ``Plan`` in the kernel, one for one, and runs the commands, captures and traces that other packages request.
It knows no scenarios, Services or verdicts.
"""
