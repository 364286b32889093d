"""Probes and steps from a Python test, inserted into a scenario's document.

``with_probes`` and ``with_steps`` give the inserted data the position of the Python call. Loading then checks it like
the rest of the document, with the same messages.
"""

from collections.abc import Mapping, Sequence

from proxylab.scenario.document import Document, Location, Marks
from proxylab.scenario.model import Position

__all__ = ["with_probes", "with_steps"]


def with_probes(location: Location, probes: Sequence[object], position: Position) -> Location:
    """The Scenario document with these probes instead of its own, and without streams and steps.

    Args:
        location: the document.
        probes: each as YAML would give it: mappings, lists, texts and numbers.
        position: the place of the probes and of everything in them.
    """
    document = location.document.marked
    here = Marks(position, position)
    marks = dict(document.marks)
    whole = dict(document.value) if isinstance(document.value, Mapping) else {}
    spec = dict(whole["spec"]) if isinstance(whole.get("spec"), Mapping) else {}
    of_spec = dict(marks.get(id(whole.get("spec")), {}))
    for moving in ("streams", "steps"):
        spec.pop(moving, None)
        of_spec.pop(moving, None)
    marks[id(whole_of := {**whole, "spec": spec})] = {"spec": here, **marks.get(id(document.value), {})}
    spec["probes"] = _marked(list(probes), here, marks)
    marks[id(spec)] = {**of_spec, "probes": here}
    return Location(Document(whole_of, document.start, marks, document.within))


def with_steps(location: Location, kept: int, steps: Sequence[tuple[object, Position]]) -> Location:
    """The Scenario document with these steps after its first ones.

    Args:
        location: the document.
        kept: how many of its own steps stay.
        steps: the new steps, each as YAML would give it, with its position.
    """
    document = location.document.marked
    marks = dict(document.marks)
    whole = dict(document.value) if isinstance(document.value, Mapping) else {}
    spec = dict(whole["spec"]) if isinstance(whole.get("spec"), Mapping) else {}
    own = spec.get("steps")
    before = own[:kept] if isinstance(own, list) else []
    locations = [Marks(position, position) for _, position in steps]
    made = [*before, *(_marked(step, here, marks) for (step, _), here in zip(steps, locations, strict=True))]
    known = dict(marks.get(id(own), {}))
    marks[id(made)] = {**known, **dict(enumerate(locations, len(before)))}
    of_spec = dict(marks.get(id(whole.get("spec")), {}))
    spec["steps"] = made
    marks[id(spec)] = {**of_spec, "steps": of_spec.get("steps", locations[0])}
    marks[id(whole_of := {**whole, "spec": spec})] = marks.get(id(document.value), {})
    return Location(Document(whole_of, document.start, marks, document.within))


def _marked(value: object, here: Marks, marks: dict[int, Mapping[str | int, Marks]]) -> object:
    """A copy of plain data in which every entry has the position ``here``."""
    made: dict[str, object] | list[object]
    match value:
        case Mapping():
            made = {str(key): _marked(each, here, marks) for key, each in value.items()}
            marks[id(made)] = dict.fromkeys(made, here)
        case list() | tuple():
            made = [_marked(each, here, marks) for each in value]
            marks[id(made)] = dict.fromkeys(range(len(made)), here)
        case _:
            return value
    return made
