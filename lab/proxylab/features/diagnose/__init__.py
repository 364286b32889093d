"""``proxylab diagnose``: finds where a Service that does not answer breaks, stage by stage, as handbooks teach it.

``runs`` collects the facts from a lab, stage after stage. A module for each stage judges them; for that, some read the
rules of both modes.
"""
