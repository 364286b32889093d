"""A Ray cluster: the connection to it, its nodes, and the actor that runs scenarios on one of them.

The caller is a client of Ray (https://docs.ray.io/en/latest/cluster/running-applications/job-submission/ray-client.html),
not a driver, which must run on a node, prints what happens to nodes on standard output, and ends with the head.
"""

import atexit
import logging
import re
import socket
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeVar

from msgspec import Struct

from proxylab.client.open_labs import MOST_JOBS
from proxylab.errors import CapabilityError, ExitCode, LabError

_Result = TypeVar("_Result")

_ADDRESS: Final = re.compile(r"ray://(\[[^]]+\]|[^:/\[\]]+):(\d{1,5})")
_REACH_SECONDS: Final = 10.0


class ClusterError(LabError):
    """The Ray cluster cannot be used: a wrong address, or no node that can run labs."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.SCENARIO) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RayNode(Struct, frozen=True):
    """A node of the cluster, how many workers it gets, and the processors of each."""

    id: str
    name: str
    workers: int
    share: float


def connect(address: str) -> Any:
    """The module of Ray, connected to a cluster. Raises ``CapabilityError`` and ``ClusterError``."""
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise CapabilityError("the package ray", "install proxylab[ray]: pip install 'proxylab[ray]'") from None
    atexit.unregister(ray.shutdown)  # it waits without limit for the head's answer; `answer_within` does not
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ClusterError(f"{address!r} is no address of a Ray cluster; give ray://HOST:10001, where HOST is its head")
    try:
        socket.create_connection((match[1].strip("[]"), int(match[2])), _REACH_SECONDS).close()  # Ray tries for longer
        _init(ray, address)
    except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())
        raise ClusterError(
            f"cannot use the Ray cluster at {address}: {why}; look at its head, started with `ray start --head` where "
            "ray[client] is installed"
        ) from None
    return ray


def _init(ray: Any, address: str) -> None:
    """Connect. The head's process for a client can die as it starts (seen with Ray 2.60); a head may start another."""
    for is_last in (False, True):
        try:
            with warnings.catch_warnings(action="ignore"):
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionAbortedError:
            if is_last:
                raise
        else:
            return


def answer_within(seconds: float, call: Callable[[], _Result]) -> _Result | None:
    """The result of a call of Ray; ``None`` after so many seconds, or when the cluster is gone.

    Ray's client waits without limit for a head that does not answer (``ray/util/client/dataclient.py``: each request,
    and ``close``).
    """
    found: list[_Result] = []

    def run() -> None:
        with suppress(ConnectionError):
            found.append(call())

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def lab_worker() -> type:
    """The class of the actors. Ray sends its code, so it must name no module of proxylab but inside its methods."""

    class LabWorker:
        """Runs scenarios on its node (``client.ray_node``)."""

        def begin(self, version: str, settings: bytes, paths: list[str], *binaries: bytes) -> str:
            """Returns why this node cannot run labs, or an empty string."""
            try:
                import proxylab  # noqa: PLC0415
                from proxylab.client.ray_node import RunsOnNode  # noqa: PLC0415
                from proxylab.errors import LabError  # noqa: PLC0415
            except ImportError as error:
                return f"its Python lacks proxylab ({error}); pip install proxylab=={version} there"
            if proxylab.__version__ != version:
                return f"it has proxylab {proxylab.__version__}; pip install proxylab=={version} there"
            try:
                self._runs = RunsOnNode(settings, dict(zip(paths, binaries, strict=True)))
            except LabError as error:
                return str(error)
            return ""

        def result(self, run: bytes) -> bytes:
            return self._runs.result(run)

        def close(self) -> bytes:
            return self._runs.close()

    return LabWorker


def nodes_of(ray: Any, number: int | None) -> list[RayNode]:
    """The nodes of the cluster that live, each with so many workers, or as many as its processors bear."""
    return [_node(each, number) for each in ray.nodes() if each["Alive"]]


def _node(found: Mapping[str, Any], number: int | None) -> RayNode:
    processors = found["Resources"].get("CPU", 0.0)
    workers = min(number or max(1, int(2 * processors)), MOST_JOBS) if processors else 0
    share = int(1e4 * min(processors / workers, 1.0)) / 1e4 if workers else 0.0  # Ray has ten-thousandths of one
    return RayNode(found["NodeID"], f"{found['NodeManagerHostname']} ({found['NodeName']})", workers, share)
