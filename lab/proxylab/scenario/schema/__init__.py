"""The shapes of a scenario file: pydantic models of what an author may write.

The package owns keys, their types, their descriptions and the messages about a wrong value. ``proxylab schema`` makes
the JSON Schema and the reference page from it. A shape sees one value at a time; ``proxylab.scenario.load`` and its
neighbours compare values. Other packages read ``proxylab.scenario.model`` instead.
"""
