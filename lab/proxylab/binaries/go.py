"""Runs the go command, asks it for modules, and makes the linker flags that set a kube-proxy's version."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proxylab.binaries.binary import KUBE_PROXY, BinaryProgram, order
from proxylab.binaries.commands import output_of
from proxylab.errors import CapabilityError

BUILD_SECONDS: Final = 45 * 60.0
ASK_SECONDS: Final = 60.0

_OF_RELEASES: Final[Mapping[str, str]] = {"GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
"""What stands for a version has its published sources alone, and no information on the folder where it is built."""
_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def run_go(
    go: str,
    folder: Path,
    words: Sequence[str],
    seconds: float,
    program: BinaryProgram = KUBE_PROXY,
    *,
    environment: Mapping[str, str] = _OF_RELEASES,
) -> str:
    """The output of a go command, which helps to build ``program``.

    ``environment`` is set besides the user's own; by default the command does what it does for every user.

    Raises:
        CapabilityError: there is no Go, or it takes too long.
        FailedCommandError: it failed.
    """
    what = f"go {' '.join(words[:2])}"
    # Static, as Kubernetes' own build.
    # Where go.mod requires a newer Go than this one, Go fetches it as a module, unless the user sets GOTOOLCHAIN.
    settings = {"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", **environment}
    try:
        return output_of((go, *words), folder, what=what, seconds=seconds, environment=settings)
    except FileNotFoundError:
        raise CapabilityError(f"Go, by which {program.name} is built", "install Go (https://go.dev/dl)") from None
    except subprocess.TimeoutExpired:
        raise CapabilityError(f"{what!r} within {seconds:.0f} s", "try again where there is more time") from None


def module_versions(go: str, module: str, wanted: re.Pattern[str], program: BinaryProgram = KUBE_PROXY) -> list[str]:
    """The versions of these names that the module proxy lists, oldest first; it may have more.

    Raises:
        CapabilityError: there is no Go, or no module proxy answers.
    """
    words = ("list", "-m", "-versions", "-json", module)
    listed = json.loads(run_go(go, Path("/"), words, ASK_SECONDS, program))
    return sorted((each for each in listed.get("Versions", ()) if wanted.fullmatch(each)), key=order)


def load_module(
    go: str, folder: Path, main: str, module: str, program: BinaryProgram = KUBE_PROXY
) -> tuple[Path, Mapping[str, Any]]:
    """Load ``MODULE@VERSION`` for a main package in ``folder``, whose go.mod calls it ``main`` from now on.

    Returns where the module's files are, and its go.mod as ``go mod edit -json`` prints it. Raises ``CapabilityError``.
    """
    (folder / "go.mod").write_text(f"module {main}\n", encoding="utf-8")
    loaded = json.loads(run_go(go, folder, ("mod", "download", "-json", module), BUILD_SECONDS, program))
    described = run_go(go, folder, ("mod", "edit", "-json", loaded["GoMod"]), ASK_SECONDS, program)
    return Path(loaded["Dir"]), json.loads(described)


def linker_flags(version: str, commit: str = "", *, dirty: bool | None = None) -> str:
    """The flags that set the version, which also decides kube-proxy's feature gates (hack/lib/version.sh)."""
    major, minor, *_ = re.findall(r"\d+", version)
    state = "dirty" if dirty else "clean"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": state}
    if commit:
        values["gitCommit"] = commit
    return "-s -w " + " ".join(
        f"-X {package}.{name}={value}" for package in _PACKAGES for name, value in values.items()
    )
