"""Replaces a part of the engine while a lab process lives, where no rule and no object shows its work.

``follow`` makes a lab process build each lab with the ``Replacement`` that a file names. ``sitecustomize`` imports this
module, so it imports a lab's rooms only where it uses them.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

__all__ = ["Replacement", "follow"]


@dataclass(frozen=True)
class Replacement:
    """A replacement; ``becomes`` is an expression that may refer to its ``module``."""

    module: str
    attribute: str
    becomes: str

    def make(self) -> Callable[[], None]:
        """Apply it in this interpreter, to every import; the returned function undoes it."""
        module = import_module(self.module)
        *owners, name = self.attribute.split(".")
        owner: Any = reduce(getattr, owners, module)
        before, becomes = vars(owner)[name], eval(self.becomes, {"module": module})
        netns_names = [partial(setattr, owner, name), *(put for put, there in _held(name) if there is before)]
        for put in netns_names:
            put(becomes)

        def undo() -> None:
            for put in netns_names:
                put(before)

        return undo

    def written(self) -> str:
        return json.dumps(asdict(self))


def _held(name: str) -> Iterator[tuple[Callable[[Any], None], Any]]:
    """All occurrences of a name in the lab's modules and the fields of their records, each with a setter."""
    modules = [module for known, module in sys.modules.items() if known.startswith("proxylab.")]
    for module in modules:
        if name in vars(module):
            yield partial(setattr, module, name), vars(module)[name]
        for record in [each for each in vars(module).values() if isinstance(each, Struct)]:
            for field in record.__struct_fields__:
                yield partial(force_setattr, record, field), getattr(record, field)


def follow(file: str) -> None:
    """Build each lab of this process with the replacement that a file names at that time, and no other."""
    from proxylab.server.event_loop import _RequestHandler

    whole, undo = _RequestHandler._build, list[Callable[[], None]]()

    async def build(handler: Any, request: Any) -> Any:
        while undo:
            undo.pop()()
        if text := Path(file).read_text(encoding="utf-8"):
            undo.append(Replacement(**json.loads(text)).make())
        return await whole(handler, request)

    _RequestHandler._build = build  # type: ignore[method-assign]
