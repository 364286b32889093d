"""A wheel of this checkout, in a fresh environment. Nothing is downloaded: the dependencies are those of the tests."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from installed import Distribution, Environment

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("LICENSE", "README.md", "lab", "pyproject.toml", "scenarios")
BUILD = """
import sys
from setuptools.build_meta import build_sdist, build_wheel
folder = sys.argv[1]  # before a build has changed it
print(build_sdist(folder), build_wheel(folder), sep="\\n")
"""
PYTEST = "import sys\nimport pytest\nsys.exit(pytest.console_main())\n"


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    # A build leaves folders beside its sources, so it gets its own.
    sources, made = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".proxylab")
            shutil.copytree(ROOT / part, sources / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / part, sources / part)
    built = subprocess.run(
        [sys.executable, "-c", BUILD, made], cwd=sources, capture_output=True, text=True, check=False, timeout=100
    )
    assert built.returncode == 0, built.stdout + built.stderr
    sdist, wheel = (made / name for name in built.stdout.splitlines()[-2:])
    return Distribution(sdist, wheel)


@pytest.fixture(scope="session")
def environment(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment"))
    venv.create(made.folder, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", made.folder / "bin" / "python"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "install", *options, distribution.wheel], check=True, timeout=100)
    # Only now, because pip would take the checkout that is installed there for the wheel.
    libraries = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (made.packages / "libraries.pth").write_text("\n".join(libraries))
    script = made.folder / "bin" / "pytest"
    script.write_text(f"#!{made.folder}/bin/python\n{PYTEST}")
    script.chmod(0o755)
    return made
