"""A Ray cluster without processes: its nodes are names, and their workers run in the caller when it waits for them."""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

__all__ = ["FakeRay", "install"]


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class _Call:
    """What ``method.remote`` returns."""

    def __init__(self, actor: "_Actor", name: str, work: Callable[[], Any]) -> None:
        self.actor, self.name, self.work = actor, name, work


class _Actor:
    def __init__(self, own: Any, node: str) -> None:
        self._own, self.node = own, node

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._own, name)
        return SimpleNamespace(
            remote=lambda *given: _Call(
                self, name, lambda: method(*(each.content if isinstance(each, _Put) else each for each in given))
            )
        )


class _Put:
    def __init__(self, content: bytes) -> None:
        self.content = content


class FakeRay:
    """The functions of the module ``ray`` that the caller uses.

    Args:
        nodes: names with their processors.
        dies: whether a node dies, by its name and the method that it is to do, asked before each.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, nodes: dict[str, float], dies: Callable[[str, str], bool] = lambda node, work: False) -> None:
        self._nodes, self._dies = nodes, dies
        self._dead: set[str] = set()
        self.is_connected = False

    def init(self, address: str, **options: object) -> None:
        self.is_connected = True

    def shutdown(self) -> None:
        self.is_connected = False

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": f"id of {name}",
                "NodeName": name,
                "NodeManagerHostname": "host",
                "Alive": name not in self._dead,
                "Resources": {"CPU": processors},
            }
            for name, processors in self._nodes.items()
        ]

    def put(self, content: bytes) -> _Put:
        return _Put(content)

    def remote(self, of: type) -> Any:
        return SimpleNamespace(
            options=lambda num_cpus, scheduling_strategy: SimpleNamespace(
                remote=lambda: _Actor(of(), scheduling_strategy.node)
            )
        )

    def wait(self, calls: Sequence[_Call], num_returns: int = 1, timeout: float = 0) -> tuple[list[_Call], list[_Call]]:
        return list(calls[:num_returns]), list(calls[num_returns:])

    def get(self, call: _Call) -> Any:
        node = call.actor.node
        if node not in self._dead and self._dies(node, call.name):
            self._dead.add(node)
        if node in self._dead:
            raise RayError(f"node {node} died")
        return call.work()

    def kill(self, actor: _Actor) -> None:
        pass


class _Affinity:
    def __init__(self, node_id: str, *, soft: bool) -> None:
        self.node = node_id.removeprefix("id of ")


def install(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Let ``import ray`` find it."""
    strategies: Any = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = _Affinity
    for name, module in {
        "ray": ray,
        "ray.util": ModuleType("ray.util"),
        "ray.util.scheduling_strategies": strategies,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return ray
