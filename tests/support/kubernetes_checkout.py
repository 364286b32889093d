"""A checkout of kubernetes, put together from the modules of which a kube-proxy was built before.

It finds the modules, and lays them out as a clone of the repository has them. It downloads nothing: without a
kube-proxy built from modules there are no sources.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from proxylab.binaries.go import run_go

__all__ = ["NoSourcesError", "make_checkout"]

_SECONDS = 60


class NoSourcesError(Exception):
    """The module cache has no kubernetes of that version."""


def make_checkout(folder: Path, version: str, staged: str = ".*") -> None:
    """Lay out a work tree of kubernetes at a tag.

    Args:
        folder: where; it must not exist.
        version: the tag, such as ``v1.36.3``.
        staged: the staging modules whose names match lie in ``staging/src/k8s.io``, all of them in a clone. The others
            are those that were published; what Go has compiled of these is not compiled anew.

    Raises:
        NoSourcesError: there is nothing to lay out.
    """
    modules = Path(json.loads(run_go("go", Path("/"), ("env", "-json", "GOMODCACHE"), _SECONDS))["GOMODCACHE"])
    source = modules / "k8s.io" / f"kubernetes@{version}"
    if not source.is_dir():
        raise NoSourcesError(f"no {source}; 'proxylab engines --obtain' builds one where no release can be loaded")
    for name in ("cmd/kube-proxy", "pkg", "third_party"):
        shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("*_test.go", "testdata"))
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(source / name, folder / name)
    published = "v0" + version.removeprefix("v1")
    go_mod = (folder / "go.mod").read_text()
    for name in re.findall(r"=> ./staging/src/k8s.io/(\S+)", go_mod):
        module = modules / "k8s.io" / f"{name}@{published}"
        if re.fullmatch(staged, name) and module.is_dir():
            _stage(module, folder / "staging/src/k8s.io" / name, published)
        elif not re.fullmatch(staged, name):
            go_mod = go_mod.replace(f"=> ./staging/src/k8s.io/{name}\n", f"=> k8s.io/{name} {published}\n")
    (folder / "go.mod").write_text(go_mod)
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)  # the module cache is read-only
    # No go.sum has the checksums of the published modules yet.
    run_go("go", folder, ("list", "-mod=mod", "-deps", "./cmd/kube-proxy"), _SECONDS)
    _commit(folder, version)


def _stage(module: Path, netns_name: Path, published: str) -> None:
    shutil.copytree(module, netns_name, ignore=shutil.ignore_patterns("*_test.go", "testdata", "go.mod"))
    text = (module / "go.mod").read_text()
    (netns_name / "go.mod").write_text(re.sub(rf"(k8s\.io/\S+) {re.escape(published)}", r"\1 v0.0.0", text))


def _commit(folder: Path, tag: str) -> None:
    author = ("-c", "user.name=a test", "-c", "user.email=test@invalid", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "A release"), ("tag", tag)):
        subprocess.run(["git", "-C", str(folder), *author, *words], check=True, capture_output=True)
