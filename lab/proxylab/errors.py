"""Errors that say whose fault it is, and the exit codes that follow from them.

Owns: the four kinds of error that may leave a room of the lab, and ``ExitCode``.
Must not: print, log, or know how an error is shown (``cli`` and ``pytest_plugin`` do).

Every message answers four questions: what happened, where (file:line:col, node, chain), what was expected, and what
to do about it. A user's mistake never ends in a traceback; an ``InternalError`` always may.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

__all__ = ["CapabilityError", "EngineError", "ExitCode", "InternalError", "LabEndedError", "LabError", "ScenarioError"]


class ExitCode(IntEnum):
    """What the ``proxylab`` command answers to its caller. pytest keeps its own codes."""

    OK = 0
    FAILED = 1
    SCENARIO = 2
    INTERNAL = 3
    CAPABILITY = 4
    NOTHING_SELECTED = 5
    INCONCLUSIVE = 6


_MORE: Final = (
    "to see more: --kube-proxy-flag --v=4 makes kube-proxy log more, and\n"
    "`proxylab rules FILE --node NODE` prints what the embedded engine loads"
)
"""What can be done where an engine itself does not say enough."""


class LabError(Exception):
    """Root of the four kinds below; never raised itself."""

    exit_code: ExitCode = ExitCode.INTERNAL


class ScenarioError(LabError):
    """The author's scenario cannot mean what it says. Carries every problem found, not the first.

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
        cure: what the user (or an administrator) can do about it.
    """

    exit_code = ExitCode.CAPABILITY

    def __init__(self, missing: str, cure: str) -> None:
        super().__init__(f"this machine lacks {missing}; {cure}")
        self.missing = missing
        self.cure = cure


class EngineError(LabError):
    """The proxy under test did not do its work: it did not start, did not synchronise, or its rules were refused.

    Attributes:
        node: the node whose engine it is.
        log: the last lines the engine or its loader wrote.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, node: str, what: str, log: str = "") -> None:
        super().__init__("\n".join([f"engine on {node}: {what}", *([log] if log else []), _MORE]))
        self.node = node
        self.what = what
        self.log = log


class InternalError(LabError):
    """Ours: the lab itself is wrong. The message asks for a report."""

    exit_code = ExitCode.INTERNAL


class LabEndedError(InternalError):
    """A process of the lab ended before its time, as one that is killed does. A traceback would tell no more."""
