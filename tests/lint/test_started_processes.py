"""Every process that proxylab starts has something that ends it with proxylab: all the places, with what that is."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from syntax import nodes_of, parsed

PACKAGE: Final = Path(__file__).resolve().parents[2] / "lab/proxylab"

STARTS: Final = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp", "execve"},
    "pty": {"fork", "spawn"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "multiprocessing": {"Process", "Pool", "get_context"},
}
"""The calls of the standard library that start a process, by their modules."""

ENDED_BY: Final = {
    "binaries/commands.py": "guard.py, which kills the program and all below it when the pipe of its caller closes",
    "binaries/guard.py": "its own reaping of all descendants; and PR_SET_PDEATHSIG",
    "cli/kubectl.py": "it is the client itself, which kubectl replaces",
    "client/lab_process.py": "the socket pair, PR_SET_PDEATHSIG of the supervisor, and the pid namespace",
    "client/workers.py": "PR_SET_PDEATHSIG of each worker",
    "guest/inside.py": "the end of the guest's kernel; programs that load modules have a deadline",
    "guest/outside.py": "the pid namespace, or PR_SET_PDEATHSIG where the machine allows no sandbox",
    "guest/rights.py": "the pid namespace of the sandbox",
    "kernel/sandbox/command_input.py": "the pid namespace of the sandbox",
    "kernel/sandbox/command_namespaces.py": "the pid namespace of the sandbox",
    "kernel/sandbox/confinement.py": "the pid namespace of the sandbox",
    "kernel/sandbox/launcher_child.py": "the pid namespace of the sandbox",
    "kernel/sandbox/sandbox.py": "PR_SET_PDEATHSIG, the lifeline pipe, and the end of the pid namespace",
}
"""What ends the processes that a module starts. A new place comes with its guard, and a test that kills the client."""


def started(tree: ast.AST) -> Iterator[str]:
    """The functions in a module that start a process. A name in a type starts nothing."""
    nodes = nodes_of(tree)
    types = [getattr(node, field) for node in nodes for field in ("annotation", "returns") if hasattr(node, field)]
    in_types = {id(each) for root in filter(None, types) for each in nodes_of(root)}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if id(node) not in in_types:
                if name in STARTS.get(module, ()) or (module == "os" and name.startswith(("exec", "spawn"))):
                    yield f"{module}.{name}"
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{each.name}" for each in names if each.name in STARTS.get(module or "", ()))


def test_every_process_that_starts_has_its_end() -> None:
    files = {str(file.relative_to(PACKAGE)): file for file in PACKAGE.rglob("*.py")}
    found = {name for name, file in files.items() if [*started(parsed(file))]}
    assert found - set(ENDED_BY) == set(), "a process without a guard: run it by binaries.commands, or say what ends it"
    assert set(ENDED_BY) - found == set(), "this place starts no process any more"
