"""Diagnoses a Service that does not answer, stage by stage, as handbooks teach it.

The room judges each stage, reads the rules of both modes for that, and formats the diagnosis.
``proxylab.client.diagnosis`` collects the facts from a lab.
"""
