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
from proxylab.protocol.messages import RaisedFault


def fault_of(error: LabError) -> RaisedFault:
    """The message for ``error``."""
    match error:
        case CapabilityError():
            return RaisedFault("capability", (error.missing, error.cure))
        case BuildError():
            return RaisedFault("build", (error.where, error.what, error.log))
        case EngineError():
            return RaisedFault("engine", (error.node, error.what, error.log))
        case ProgramError():
            return RaisedFault("program", (error.program, error.what, error.log))
        case ScenarioError():
            return RaisedFault("scenario", error.problems)
        case LabFullError():
            return RaisedFault("full", (str(error.clients),))
        case LabEndedError():
            return RaisedFault("ended", (str(error),))
        case _:
            return RaisedFault("internal", (str(error),))


def error_of(fault: RaisedFault) -> LabError:
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
