"""The round that handbooks teach for a Service that does not answer, station by station.

Owns: what each station is judged by, how rules of either mode are read for that, and how a diagnosis is shown.
Must not: ask a lab, or send into it: ``proxylab.client.diagnosis`` finds what is judged here.
"""
