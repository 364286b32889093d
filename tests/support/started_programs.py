"""The programs that Python code starts, as far as its text says: a list of words, or a script for a shell.

A list of words is a command if it is handed to what starts commands, or if one of its other words is an option. A
script is what follows ``sh -c`` or ``bash -c``, in place or as a constant of the module. Any other text but a docstring
is a script if it begins as one, and its commands are those with an option: what a lab runs is often handed on, or
written to a file for others to run.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from syntax import nodes_of, parsed

__all__ = ["programs_of", "programs_of_script"]

_STARTERS = {
    *(
        "run",
        "Popen",
        "check_call",
        "check_output",
        "create_subprocess_exec",
        "output_of",
        "run_guarded",
        "quietly",
        "posix_spawnp",
    ),
    *("execute", "Execute", "execv", "execvp", "which", "execvpe", "do", "run_guarded"),
}
_SHELLS = {"sh", "bash", "/bin/sh", "/bin/bash"}
_NAME = re.compile(r"[a-z/][a-z0-9/_.+-]*")
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_HERE_TEXT = re.compile(r"<<-?\s*'?(\w+)'?.*?^\1$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"'[^']*'")
_BEGIN = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(")
_OPTION = re.compile(r"--?[a-zA-Z]")
_STARTS_ANOTHER = re.compile(r"(ip netns exec \S+|setsid|unshare(?: -\S+)*|timeout \S+|nice -n \S+|xargs(?: -\S+)*)\s+")
_BEGINS_A_SCRIPT = {
    *("[", "cat", "cd", "echo", "exec", "export", "for", "if", "ip", "iptables", "kill", "mkdir", "mount", "nft"),
    *("set", "setsid", "sh", "sleep", "test", "touch", "until", "while"),
}
_BEFORE = re.compile(r"(?:(?:then|do|else|elif|if|while|until|exec|command|!|nohup|time|\w+=\S*)\s+)*")


def programs_of(file: Path) -> Iterator[tuple[str, int]]:
    """Each program with its line."""
    tree = parsed(file)
    nodes = nodes_of(tree)
    constants = {
        target.id: each.value.value
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from ((name, node.lineno) for name in _started(node))
            words = node.args
        elif isinstance(node, ast.List | ast.Tuple):
            words = node.elts
            if _has_option(words) and (name := _text(words[0])) and _NAME.fullmatch(name):
                yield name, node.lineno
        else:
            continue
        for script in _scripts(words, constants):
            yield from ((name, node.lineno) for name in programs_of_script(script))
    for text, line in _other_texts(nodes):
        commands = [*_commands(text)]
        first = commands[0][0] if commands else ""
        if first in _BEGINS_A_SCRIPT or (commands and _OPTION.match(commands[0][1])):
            yield from ((name, line) for name, argument in commands if _OPTION.match(argument))


def _started(call: ast.Call) -> Iterator[str]:
    """The first word of a list, or of the words behind the place where it runs, that a starter is called with."""
    starter = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if starter not in _STARTERS:
        return
    for argument in call.args[:2]:
        words = argument.elts if isinstance(argument, ast.List | ast.Tuple) else ()
        if words and _NAME.fullmatch(_text(words[0])):
            yield _text(words[0])
    named = call.args[1:2] if starter == "execute" else call.args[:1] if starter in ("which", "do") else ()
    yield from (_text(each) for each in named if _NAME.fullmatch(_text(each)))


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _has_option(words: Sequence[ast.expr]) -> bool:
    return any(_OPTION.match(_text(each)) for each in words[1:])


def _scripts(words: Sequence[ast.expr], constants: dict[str, str]) -> Iterator[str]:
    shell = next((number for number, each in enumerate(words) if _text(each) in _SHELLS), None)
    if shell is None:
        return
    for option, script in zip(words[shell + 1 :], words[shell + 2 :], strict=False):
        if re.fullmatch(r"-\w*c", _text(option)):
            yield from _known_text(script, constants)
        if not _text(option).startswith("-"):
            return


def _known_text(script: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    if isinstance(script, ast.Name):
        yield constants.get(script.id, "")
    else:
        yield _text_with_gaps(script)


def _text_with_gaps(node: ast.AST) -> str:
    """The text of a constant, or of an f-string with X for each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) if isinstance(each, ast.Constant) else "X" for each in node.values)
    return _text(node)


def _other_texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """The texts of a module with their lines, but for docstrings."""
    apart = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    apart |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in apart:
            yield _text_with_gaps(node), node.lineno


def programs_of_script(script: str) -> Iterator[str]:
    """The first word of each command of a shell script, its builtins among them; words in quotes are no commands."""
    return (name for name, _ in _commands(script))


def _commands(script: str) -> Iterator[tuple[str, str]]:
    """The first two words of each command; a command that starts another one counts as well as that one."""
    text = _QUOTED.sub("X", _COMMENT.sub("", _HERE_TEXT.sub("", script)))
    text = re.sub(r"\d*>&?\d*", ">", text)
    for command in _BEGIN.split(text):
        rest = command.strip().strip('"')
        rest = rest[_BEFORE.match(rest).end() :]  # type: ignore[union-attr] # it matches the empty text, too
        while starter := _STARTS_ANOTHER.match(rest):
            yield starter[1].split()[0], ""
            rest = rest[starter.end() :]
        word, argument = [*rest.split()[:2], "", ""][:2]
        if _NAME.fullmatch(word):
            yield word, argument
