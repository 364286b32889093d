"""Runs the go command, and makes the linker flags that set a kube-proxy's version."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxylab.errors import CapabilityError

__all__ = ["BUILD_SECONDS", "linker_flags", "run_go"]

BUILD_SECONDS: Final = 45 * 60.0
_TAIL: Final = 20
_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def run_go(go: str, folder: Path, words: Sequence[str], seconds: float) -> str:
    """The output of a go command.

    Raises:
        CapabilityError: with the last lines of its output.
    """
    what = f"go {' '.join(words[:2])}"
    # Static, as Kubernetes' own build, and without version control information of a surrounding folder.
    # Where go.mod requires a newer Go than this one, Go fetches it as a module, unless the user sets GOTOOLCHAIN.
    environment = {"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    try:
        done = subprocess.run(
            [go, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        raise CapabilityError("Go, by which kube-proxy is built", "install Go (https://go.dev/dl)") from None
    except subprocess.TimeoutExpired:
        raise CapabilityError(f"{what!r} within {seconds:.0f} s", "try again where there is more time") from None
    if done.returncode != 0:
        output = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL:])
        raise CapabilityError(f"{what!r} without an error; it prints:\n  {output}\n", "fix that error")
    return done.stdout


def linker_flags(version: str) -> str:
    """The flags that set the version, which also decides kube-proxy's feature gates (hack/lib/version.sh)."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return "-s -w " + " ".join(
        f"-X {package}.{name}={value}" for package in _PACKAGES for name, value in values.items()
    )
