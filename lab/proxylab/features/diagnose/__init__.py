"""``proxylab diagnose``: finds where a Service that does not answer breaks, stage by stage, as handbooks teach it.

``runs`` collects the facts from a lab, stage after stage. The modules ``…_stage``, ``…_stages`` and
``path_test_results`` judge them.
"""
