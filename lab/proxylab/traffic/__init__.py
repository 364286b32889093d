"""Sends probes, dialogues and streams into a lab, answers in place of the pods, and records what became of each flow.

Layered on ``proxylab.kernel``. ``runner`` conducts the run of one probe, ``streams`` the flows that continue through
all steps, ``dialogue`` a conversation of crafted segments. ``proxylab.verdict`` judges what this package records.
"""
