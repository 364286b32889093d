"""Mutants of functions, each in a fork of one process that has imported and collected everything; a plugin of pytest.

A fresh interpreter for each mutant takes most of its time to import the package and the tests. So here pytest collects
the tests once, and forks for each mutant. The child gives the functions of the mutated module their code anew, in
place, so that each name which already refers to one of them means the mutant. Then it runs the mutant's tests up to the
first that fails. What a module does when it is imported cannot be changed so; ``mutated_code`` runs those mutants.

``FORKED_MUTANTS`` names a file with a list of mutants. Beside it, with the suffix ``.noticed``, the plugin writes a
line for each as soon as it knows: the number, and whether a test failed, or ``null`` where the function is not to be
found. It tries no mutant again of which it finds such a line.
"""

import ast
import functools
import inspect
import json
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

__all__ = ["pytest_configure"]

_NOTICED, _UNNOTICED, _ABSENT, _BROKEN = 20, 21, 22, 23


class _Forked:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._mutants: Sequence[Mapping[str, object]] = json.loads(file.read_bytes())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        shown = self._file.with_suffix(".noticed")
        known = {json.loads(line)[0] for line in shown.read_text().splitlines()} if shown.exists() else set()
        waiting = [(number, mutant) for number, mutant in enumerate(self._mutants) if number not in known]
        running: dict[int, int] = {}
        while waiting or running:
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                number, mutant = waiting.pop(0)
                tests = mutant["tests"]
                assert isinstance(tests, list)
                if (pid := os.fork()) == 0:
                    folder = self._file.with_suffix(f".{number}")
                    try:
                        _become(mutant, session, [items[test] for test in tests], folder)
                    except BaseException:
                        folder.with_suffix(".error").write_text(traceback.format_exc(), encoding="utf-8")
                    finally:
                        os._exit(_BROKEN)
                running[pid] = number
            pid, status = os.wait()
            if pid in running:
                number = running.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                if code == _BROKEN:
                    raise RuntimeError(self._file.with_suffix(".error").read_text(encoding="utf-8"))
                noticed = None if code == _ABSENT else code != _UNNOTICED
                with shown.open("a", encoding="utf-8") as lines:
                    lines.write(f"{json.dumps([number, noticed])}\n")
        return True


def _become(mutant: Mapping[str, object], session: pytest.Session, items: Sequence[pytest.Item], folder: Path) -> None:
    """Run the tests on the mutant, and end the process with what came out."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    folder.mkdir(exist_ok=True)
    module = import_module(str(mutant["module"]))
    if str(mutant["function"]) not in set(_changed(module, str(mutant["text"]))):
        os._exit(_ABSENT)
    for item, following in zip(items, [*items[1:], None][: len(items)], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            os._exit(_NOTICED)
    os._exit(_UNNOTICED)


def _changed(module: ModuleType, text: str) -> Iterator[str]:
    """Give the module's functions and methods the code of that text; yields their names, ``Class.method``."""
    code = compile(text, str(module.__file__), "exec")
    named = {each.name: each for each in ast.parse(text).body if isinstance(each, ast.ClassDef)}
    for name, of_name in _codes(code):
        own = vars(module).get(name)
        if name in named and inspect.isclass(own):
            for method, of_method in _codes(of_name):
                if _exchange(vars(own).get(method), of_method):
                    yield f"{name}.{method}"
        elif _exchange(own, of_name):
            yield name


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The functions and classes in a piece of code, by their names; none of which it has two."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    names = [each.co_name for each in inner]
    yield from ((each.co_name, each) for each in inner if names.count(each.co_name) == 1)


def _exchange(found: object, code: CodeType) -> bool:
    """Give a function its code, whatever decorates it; whether there is one."""
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, functools.cached_property):
        found = found.func
    elif isinstance(found, staticmethod | classmethod):
        found = found.__func__
    found = inspect.unwrap(found) if callable(found) else found
    if not isinstance(found, FunctionType) or found.__code__.co_freevars != code.co_freevars:
        return False
    found.__code__ = code
    return True


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get("FORKED_MUTANTS"):
        config.pluginmanager.register(_Forked(Path(file)))
