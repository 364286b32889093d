"""The round that handbooks teach for a Service that does not answer, station by station.

Pure: what was found in a lab goes in, and a ``Diagnosis`` comes out. ``lab.diagnosing`` finds.
"""
