"""A compiled module that a full disk or a limit has cut: one line, and the next start makes it again."""

import compileall
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import proxylab
from proxylab.compiled_modules import is_of_damaged_module
from proxylab.errors import ExitCode

MODULES = ("cli/command", "cli/check", "scenario/load", "verdict/model", "features/expected/verb")
HEAD = 16


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled copy of proxylab, whose files are as old as they were when they were compiled."""
    root = tmp_path_factory.mktemp("copied")
    source = Path(proxylab.__file__).parent
    shutil.copytree(source, root / "proxylab", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(root / "proxylab", quiet=1)
    return root


def type_in(copy: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-m", "proxylab", *words],
        env={**environment, "PYTHONPATH": str(copy)},
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", ["half", "head"])
@pytest.mark.parametrize(
    "module", [MODULES[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in MODULES[1:])]
)
def test_a_cut_module_is_told_in_a_line_and_made_again(copy: Path, module: str, part: str) -> None:
    words = [
        "expected" if "expected" in module else "check",
        str(Path(proxylab.__file__).parents[2] / "scenarios/clusterip/from-a-pod.lab.yaml"),
    ]
    name = Path(module)
    compiled = copy / "proxylab" / name.parent / "__pycache__" / f"{name.name}.{sys.implementation.cache_tag}.pyc"
    whole = compiled.read_bytes()
    compiled.write_bytes(whole[: len(whole) // 2 if part == "half" else HEAD])
    first = type_in(copy, *words)
    assert first.returncode == ExitCode.CAPABILITY, first.stderr
    assert first.stderr.lstrip() == (  # click ends the line of what it takes for Ctrl-D
        "compiled modules of Python are damaged, as a full disk or a limit leaves them; "
        "they are removed: type it again\n"
    )
    second = type_in(copy, *words)
    assert (second.returncode, second.stderr) == (0, "")
    assert compiled.read_bytes() == whole


def test_other_errors_are_none_of_it() -> None:
    with pytest.raises(EOFError) as raised:
        marshal.loads(b"")
    assert not is_of_damaged_module(raised.value)
    assert not is_of_damaged_module(EOFError("EOF when reading a line"))
