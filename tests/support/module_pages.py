"""The pages of a Go module proxy, for tests that build from modules."""

import io
import json
import zipfile
from collections.abc import Mapping


def module(path: str, version: str, go_mod: str, files: Mapping[str, str]) -> dict[str, bytes]:
    """What a proxy answers for one version of a module (https://go.dev/ref/mod#goproxy-protocol)."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in {"go.mod": go_mod, **files}.items():
            archive.writestr(f"{path}@{version}/{name}", text)
    info = json.dumps({"Version": version, "Time": "2026-07-14T00:00:00Z"}).encode()
    kinds = {"info": info, "mod": go_mod.encode(), "zip": packed.getvalue()}
    return {f"/{path}/@v/{version}.{kind}": content for kind, content in kinds.items()}
