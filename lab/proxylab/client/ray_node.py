"""What a worker on a node of a Ray cluster does: it runs scenarios in sessions of its own.

Everything that it needs comes from the caller (``client.ray_workers``): scenarios with their text, the choice of
engines, and the binary of kube-proxy. A kernel and other programs are the node's own. Evidence goes back with results.
"""

import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from hashlib import sha256
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from proxylab.binaries.cache import Cache
from proxylab.client.lab_process import LabProcess
from proxylab.client.open_labs import OpenLabs
from proxylab.client.scenario_run import Run, ScenarioRuns
from proxylab.client.session import Session
from proxylab.client.tasks import WorkerEnded
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import LabError
from proxylab.guest.kernels import find_kernel
from proxylab.protocol.faults import fault_of
from proxylab.scenario.words import HOST, Position
from proxylab.verdict.model import UNRESOLVED, ProbeVerdict, ScenarioResult, StepVerdict

_Verdict = TypeVar("_Verdict", bound=ProbeVerdict | StepVerdict)
Files = Mapping[str, bytes]


class NodeSettings(Struct, frozen=True):
    """What all workers of a run have alike.

    Attributes:
        choices: of engines, by name. The caller's paths of binaries are in them.
        kernels: that the scenarios need, as ``--kernel`` spells them.
        trace: trace one more packet of each probe.
        bundles: send the evidence of what did not pass.
    """

    choices: Mapping[str, EngineChoice]
    kernels: Sequence[str]
    seed: int
    trace: bool
    bundles: bool


class RayAnswer(Struct, frozen=True):
    """The result of a scenario, remarks for the user, and the evidence of its probes and steps by their positions."""

    result: ScenarioResult
    notes: Sequence[str]
    bundles: Mapping[Position, Files]


class _Gathered(Struct):
    """Gathers the evidence of one scenario, in place of a folder of bundles."""

    files: dict[Position, Files]

    def settle(
        self,
        verdict: _Verdict,
        engine: str,
        files: Callable[[], Files],
        warn: Callable[[str], None],
        name: str = "",
    ) -> _Verdict:
        """Gather the evidence of a verdict that did not pass."""
        if verdict.overall in UNRESOLVED:
            try:
                self.files[verdict.written.position] = files()
            except OSError as error:
                warn(f"cannot send the evidence of {name or verdict.written.position}: {error}")
        return verdict


class RunsOnNode:
    """Runs scenarios on this node."""

    def __init__(self, settings: bytes, binaries: Mapping[str, bytes]) -> None:
        """Get ready for every scenario of the run.

        Args:
            settings: a pickled ``NodeSettings``.
            binaries: the contents of the caller's binaries, by their paths there.

        Raises:
            CapabilityError: the node lacks what every lab needs, or a kernel.
        """
        given: NodeSettings = pickle.loads(settings)  # noqa: S301 - a cluster of Ray runs what its clients send
        for kernel in given.kernels:
            if kernel == HOST:
                with closing(LabProcess()) as process:
                    process.ready()
            else:
                find_kernel(kernel)
        ours = {path: _kept(path, data) for path, data in binaries.items()}
        choices = {
            name: replace(choice, upstream=replace(choice.upstream, binary=ours[choice.upstream.binary]))
            if choice.upstream
            else choice
            for name, choice in given.choices.items()
        }
        self._stack: Final = ExitStack()
        sessions = OpenLabs(lambda name: self._stack.enter_context(Session(choices[name], given.seed)))
        self._gathered = _Gathered({})
        store = self._gathered if given.bundles else None
        self._runs = ScenarioRuns(sessions.session, trace=given.trace, store=store)

    def result(self, run: bytes) -> bytes:
        """Run a pickled ``Run``. Returns a pickled ``RayAnswer``, or ``WorkerEnded`` after a bug."""
        task: Run = pickle.loads(run)  # noqa: S301
        self._gathered.files = {}
        notes: list[str] = []
        try:
            result = self._runs.result(task, lambda what: None, notes.append)
        except Exception:
            return pickle.dumps(WorkerEnded(bug=traceback.format_exc()))
        return pickle.dumps(RayAnswer(result, notes, self._gathered.files))

    def close(self) -> bytes:
        """Close the sessions. Returns a pickled ``WorkerEnded``."""
        try:
            self._stack.close()
        except LabError as error:
            return pickle.dumps(WorkerEnded(fault_of(error)))
        except Exception:
            return pickle.dumps(WorkerEnded(bug=traceback.format_exc()))
        return pickle.dumps(WorkerEnded())


def _kept(path: str, data: bytes) -> str:
    """The path of a caller's binary in this node's cache, apart from those that the node obtained itself.

    Raises:
        CapabilityError: it does not run on this machine, or the cache is not writable.
    """
    cache, origin = Cache.of_user().part("sent"), f"{path} of a caller, SHA-256 {sha256(data).hexdigest()}"
    with cache.workspace(origin) as folder:
        known = cache.of_origin(origin)
        if known is None:
            candidate = folder / cache.program.name
            candidate.write_bytes(data)
            known = cache.keep(candidate, origin)
    return str(known.path)
