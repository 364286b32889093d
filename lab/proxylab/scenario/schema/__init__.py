"""The shapes of a scenario file: pydantic models of what an author may write.

Owns: keys, their types and descriptions, and the words in which a wrong value is refused. A JSON Schema and a reference
page can be made from the models.
Must not: look at two places of a file at once (``proxylab.scenario.load`` and its neighbours do), or leave this
room: what
other rooms read is ``proxylab.scenario.model``.
"""
