"""The kinds of error, by the owner of the fault, and the exit codes that follow from them.

Every message answers four questions: what happened, where (file:line:col, node, chain), what the lab expected, and what
to do about it. A user's mistake never ends in a traceback; an ``InternalError`` may.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

__all__ = [
    "GUEST_ENDED",
    "HOW_TO_SEE_MORE",
    "LAUNCHER_ENDED",
    "BuildError",
    "CapabilityError",
    "EngineError",
    "ExitCode",
    "InternalError",
    "LabEndedError",
    "LabError",
    "LabFullError",
    "LabStuckError",
    "OutputError",
    "ProgramError",
    "ScenarioError",
]


class ExitCode(IntEnum):
    """The exit codes of the command ``proxylab``. pytest keeps its own."""

    OK = 0
    FAILED = 1
    SCENARIO = 2
    INTERNAL = 3
    CAPABILITY = 4
    NOTHING_SELECTED = 5
    INCONCLUSIVE = 6


LAUNCHER_ENDED: Final = 70
"""The exit status of a lab process that ends because its launcher did."""

GUEST_ENDED: Final = 71
"""The exit status in a lab process's place where a guest's kernel has ended by itself, or was ended."""

HOW_TO_SEE_MORE: Final = (
    "to see more: --kube-proxy-flag --v=4 makes kube-proxy log more, and\n"
    "`proxylab rules FILE --node NODE` prints what the embedded engine loads"
)
"""The advice where an engine's own log is too short."""


class LabError(Exception):
    """The base class of the kinds below."""

    exit_code: ExitCode = ExitCode.INTERNAL


class ScenarioError(LabError):
    """The author's scenario has mistakes. The error carries all of them.

    Attributes:
        problems: one finished line each, ``file:line:col: path: what is wrong; what is allowed``.
    """

    exit_code = ExitCode.SCENARIO

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CapabilityError(LabError):
    """The machine lacks something that the lab needs.

    Attributes:
        missing: the capability in a few words, such as ``user namespaces``.
        cure: what the user or an administrator can do about it.
    """

    exit_code = ExitCode.CAPABILITY

    def __init__(self, missing: str, cure: str) -> None:
        super().__init__(f"this machine lacks {missing}; {cure}")
        self.missing = missing
        self.cure = cure


class BuildError(LabError):
    """The sources of the proxy under test do not build. Their author is at fault, not the machine.

    Attributes:
        where: the folder of the sources.
        what: why they do not build.
        log: the last lines that the tool wrote.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, where: str, what: str, log: str = "") -> None:
        super().__init__("\n".join([f"kube-proxy in {where} does not build: {what}", *([log] if log else [])]))
        self.where = where
        self.what = what
        self.log = log


class EngineError(LabError):
    """The proxy under test failed: it did not start or synchronise, or the kernel refused its rules.

    Attributes:
        log: the last lines the engine or its loader wrote.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, node: str, what: str, log: str = "") -> None:
        super().__init__("\n".join([f"engine on {node}: {what}", *([log] if log else []), HOW_TO_SEE_MORE]))
        self.node = node
        self.what = what
        self.log = log


class ProgramError(LabError):
    """A program of the cluster in a pod failed, such as CoreDNS: it did not start, or did not follow the cluster.

    Attributes:
        program: the program and its pod.
        log: the last lines that it wrote.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, program: str, what: str, log: str = "") -> None:
        super().__init__("\n".join([f"{program}: {what}", *([log] if log else [])]))
        self.program = program
        self.what = what
        self.log = log


class LabFullError(LabError):
    """A standing lab serves as many clients as it can.

    Attributes:
        clients: how many it serves.
    """

    exit_code = ExitCode.CAPABILITY

    def __init__(self, clients: int) -> None:
        super().__init__(
            f"the lab serves {clients} clients already, and takes no more; "
            "end one of them, such as a `proxylab shell`, `logs --follow` or `capture`"
        )
        self.clients = clients


class OutputError(LabError):
    """A file that the user asked for cannot be written."""

    exit_code = ExitCode.FAILED

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"cannot write {file}: {why}; free some space there, or name another file")


class InternalError(LabError):
    """The lab itself is wrong. The message asks for a report."""

    exit_code = ExitCode.INTERNAL


class LabEndedError(InternalError):
    """A process of the lab ended early, such as a killed one. A traceback would add nothing."""


class LabStuckError(LabEndedError):
    """A process of the lab does not run, such as a stopped one, so no answer came in time."""
