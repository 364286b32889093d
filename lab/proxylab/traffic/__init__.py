"""Probes become packets or connections, and what the taps see becomes observations.

Owns: identities of flows, crafted frames, kernel-socket dialogues, the responders of pods, and the run of one errand.
Must not: make namespaces, links or rules (``kernel`` does), know what a scenario hopes for, or judge (``verdict``).
"""
