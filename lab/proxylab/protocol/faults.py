"""Carries errors from the lab process to the client: both directions of one translation."""

from proxylab.errors import (
    BuildError,
    CapabilityError,
    EngineError,
    InternalError,
    LabEndedError,
    LabError,
    LabFullError,
    ProgramError,
    ScenarioError,
)
from proxylab.protocol.messages import Fault


def fault_of(error: LabError) -> Fault:
    """The message for ``error``."""
    match error:
        case CapabilityError():
            return Fault("capability", (error.missing, error.cure))
        case BuildError():
            return Fault("build", (error.where, error.what, error.log))
        case EngineError():
            return Fault("engine", (error.node, error.what, error.log))
        case ProgramError():
            return Fault("program", (error.program, error.what, error.log))
        case ScenarioError():
            return Fault("scenario", error.problems)
        case LabFullError():
            return Fault("full", (str(error.clients),))
        case LabEndedError():
            return Fault("ended", (str(error),))
        case _:
            return Fault("internal", (str(error),))


def error_of(fault: Fault) -> LabError:
    """The error that ``fault`` carries, for the caller to raise."""
    match fault.kind, fault.words:
        case "capability", (missing, cure):
            return CapabilityError(missing, cure)
        case "build", (where, what, log):
            return BuildError(where, what, log)
        case "engine", (node, what, log):
            return EngineError(node, what, log)
        case "program", (program, what, log):
            return ProgramError(program, what, log)
        case "scenario", problems:
            return ScenarioError(problems)
        case "full", (clients,):
            return LabFullError(int(clients))
        case "ended", words:
            return LabEndedError("\n".join(words))
        case _:
            return InternalError("\n".join(fault.words))
