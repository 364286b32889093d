"""Frozen dataclasses to JSON and back, by their type hints.

Owns: the one form in which the lab's data crosses a process or is written to a file.
Must not: know any particular dataclass. What it can carry: dataclasses, enums, named tuples, ``str``, ``int``, ``float``,
``bool``, ``None``, ``ipaddress`` objects, ``tuple[X, ...]``, ``tuple[X, Y]``, ``Mapping[str, X]`` and unions of these.

A dataclass becomes an object of the fields that differ from their defaults. Only where a hint is a union of several
dataclasses does the object carry its class's name, under ``"is"``: the reader then knows which of them to build.
Coders are made once per type and cached, since a run carries tens of thousands of observations.
"""
