"""A lab process whose descriptors run out at any moment says so, leaves nothing, spins not, and goes on later.

The soft limit is lowered in the lab process itself, one descriptor after the other, so that each of its calls is once
the first that gets none. The check before a build looks at the hard limit, and lets each of these builds begin.
"""

import os
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sandboxed import sandboxed
from scenario_cases import frontend, probe, two_nodes

from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.assembly import assemble
from proxylab.protocol.faults import error_of
from proxylab.protocol.messages import AnyResponse, Build, Close, Execute, Failed, Response, SendProbe
from proxylab.server.event_loop import _RequestHandler
from proxylab.timing import pass_by

ASSEMBLY = assemble(two_nodes(probe("p", "sender", frontend())))
ENGINE = EngineChoice(cluster_cidrs=ASSEMBLY.scenario.network.pod_cidrs, iptables="legacy")
BUILD = Build(ASSEMBLY.plan, ASSEMBLY.objects, ENGINE)
SEND = SendProbe(ASSEMBLY.resolved_probes[0])


@contextmanager
def allowed(further: int) -> Iterator[None]:
    """So many descriptors beyond the open ones; the lowest free numbers come first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(each) for each in os.listdir("/proc/self/fd")}
    free = (number for number in range(soft) if number not in taken)
    limit = next(number for place, number in enumerate(free) if place == further)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def said(answer: AnyResponse) -> str:
    """Empty where it was carried out, or because of the limit it was not; otherwise what is wrong."""
    match answer:
        case Failed(fault):
            error = error_of(fault)
            named = isinstance(error, CapabilityError) and "open files" in str(error)
            return "" if named else f"{type(error).__name__}: {error}"
    return "" if isinstance(answer, Response) else str(answer)


async def at_each_limit(launcher: Launcher) -> dict[str, Any]:
    return await at_limits(launcher, 1)


async def at_some_limits(launcher: Launcher) -> dict[str, Any]:
    return await at_limits(launcher, 9)


async def at_limits(launcher: Launcher, stride: int) -> dict[str, Any]:
    handler = _RequestHandler(launcher)
    assert isinstance(await handler.answer(BUILD), Response)
    assert isinstance(await handler.answer(Close()), Response)
    found: dict[str, Any] = {"wrong": {}, "refused": 0}
    for further in range(0, 200, stride):
        with allowed(further):
            built = await handler.answer(BUILD)
        closed = await handler.answer(Close())
        if wrong := said(built) or said(closed):
            found["wrong"][f"build with {further}"] = wrong
        found["refused"] += isinstance(built, Failed)
        if not isinstance(built, Failed):
            break
    built = await handler.answer(BUILD)
    assert isinstance(built, Response), (built, found)
    for further in range(12):
        for what, request in (("probe", SEND), ("command", Execute("echo-1", ("true",)))):
            with allowed(further):
                answer = await handler.answer(request)
            again = await handler.answer(request)
            if wrong := said(answer) or ("" if isinstance(again, Response) else str(again)):
                found["wrong"][f"{what} with {further}"] = wrong
            found["refused"] += isinstance(answer, Failed)
    with allowed(0):
        began = time.process_time()
        await pass_by(0.5)
        found["spins"] = time.process_time() - began
    closed = await handler.answer(Close())
    found["closed"] = str(closed) if not isinstance(closed, Response) else ""
    return found


# Each limit of a build; every run tries each ninth, and each one of a probe and of a command.
@pytest.mark.parametrize("limits", [at_some_limits, pytest.param(at_each_limit, marks=pytest.mark.thorough)])
def test_each_descriptor_may_be_the_last(limits: Callable[[Launcher], Awaitable[dict[str, Any]]]) -> None:
    found = sandboxed(limits, seconds=300)
    assert found["wrong"] == {}
    assert found["closed"] == ""
    assert found["refused"] > (40 if limits is at_each_limit else 5), found
    assert found["spins"] < 0.2
