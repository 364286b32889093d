"""Programs that say of themselves that they are a kube-proxy."""

from pathlib import Path

PROGRAM = "#!/bin/sh\necho Kubernetes {version}\n"


def program(path: Path, version: str) -> Path:
    path.write_text(PROGRAM.format(version=version))
    path.chmod(0o755)
    return path
