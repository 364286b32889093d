"""``./dev test`` leaves out the files of pure tests that no change reaches, and no others."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from changes import ROOT
from unreached import importers, reached_by, unreached

PROJECT = {
    "conftest.py": "from skipped import Skipped\n",
    "lab/proxylab/__init__.py": "",
    "lab/proxylab/plan/__init__.py": "",
    "lab/proxylab/plan/ports.py": "PORTS = 2\n",
    "lab/proxylab/plan/topology.py": "from proxylab.plan import (\n    ports,\n)\n",
    "lab/proxylab/verbs.py": "from importlib import import_module\n",
    "tests/support/planned.py": "def planned():\n    from proxylab.plan.topology import draw\n",
    "tests/support/skipped.py": "",
    "tests/unit/test_alone.py": "import json\n",
    "tests/unit/test_patched.py": 'TARGET = "proxylab.plan.ports"\n',
    "tests/unit/test_planned.py": "from planned import planned\n",
    "tests/unit/test_data.py": 'ROOT = Path(__file__).parents[2]\nFILES = (ROOT / "scenarios").rglob("*.lab.yaml")\n',
    "tests/unit/test_reader.py": "ROOT = Path(__file__).parents[2]\n",
    "tests/unit/test_verbs.py": "import proxylab.verbs\n",
}
ALL = {each for each in PROJECT if "/test_" in each}
ALWAYS = {"tests/unit/test_reader.py", "tests/unit/test_verbs.py"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for file, text in PROJECT.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ((), set()),
        (("docs/README.md",), ALWAYS),
        (("lab/proxylab/plan/ports.py",), {*ALWAYS, "tests/unit/test_patched.py", "tests/unit/test_planned.py"}),
        (("lab/proxylab/plan/topology.py",), {*ALWAYS, "tests/unit/test_planned.py"}),
        (("lab/proxylab/plan/__init__.py",), {*ALWAYS, "tests/unit/test_patched.py", "tests/unit/test_planned.py"}),
        (("lab/proxylab/__init__.py",), {*ALWAYS, "tests/unit/test_patched.py", "tests/unit/test_planned.py"}),
        (("lab/proxylab/verbs.py",), ALWAYS),
        (("tests/support/planned.py",), {*ALWAYS, "tests/unit/test_planned.py"}),
        (("tests/unit/test_alone.py",), {*ALWAYS, "tests/unit/test_alone.py"}),
        (("tests/support/skipped.py",), ALL),  # the conftest has it
        (("conftest.py",), ALL),
        (("lab/proxylab/scenario/promises.yaml",), ALL),
        (("pyproject.toml",), ALL),
        (("scenarios/clusterip/from-a-pod.lab.yaml", "docs/README.md"), {*ALWAYS, "tests/unit/test_data.py"}),
    ],
)
def test_a_file_is_left_out_where_nothing_that_it_may_see_has_changed(
    project: Path, changed: tuple[str, ...], reached: Iterable[str]
) -> None:
    assert {*unreached(project, changed)} == ALL - {*reached}


def test_a_module_that_is_gone_reaches_those_who_imported_it(project: Path) -> None:
    (project / "lab/proxylab/plan/ports.py").unlink()
    left_out = unreached(project, ["lab/proxylab/plan/ports.py"])
    assert {*left_out} == {"tests/unit/test_alone.py", "tests/unit/test_data.py"}


LOADED = """
import importlib.util, json, os, sys
import hypothesis.strategies, msgspec, pytest, yaml  # a fork need not load them again
loaded = {}
for file in sys.argv[1:]:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        spec = importlib.util.spec_from_file_location("tried", file)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        os.write(writing, json.dumps(sorted(name for name in sys.modules if name.startswith("proxylab"))).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        loaded[file] = json.load(answer)
    os.wait()
print(json.dumps(loaded))
"""


@pytest.mark.thorough  # the table above has each form of an import
def test_no_test_loads_a_module_that_its_text_does_not_lead_to() -> None:
    tests = unreached(ROOT, ["docs/README.md"])
    assert len(tests) > 100
    paths = [f"{ROOT}/{each}" for each in ("lab", "tests/benchmarks", "tests/editor", "tests/kernel", "tests/support")]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *tests],
        cwd=ROOT,
        env={"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by = importers(ROOT, tests)
    files = {file.removeprefix("lab/").removesuffix(".py").replace("/", "."): file for file in by}
    unforeseen = []
    for test, names in json.loads(done.stdout).items():
        for name in names:
            file = files.get(name) or files.get(f"{name}.__init__")
            if file is not None and test not in reached_by(by, [file]):
                unforeseen.append((test, name))
    assert unforeseen == []
