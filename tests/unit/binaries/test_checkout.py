"""A checkout of kubernetes: what is one, and what version its kube-proxy calls itself.

Go is a script here that writes down what it was told. A checkout that is really built: ``tests/engines``.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from proxylab.binaries.cache import Cache
from proxylab.binaries.checkout import CheckoutSource, is_checkout
from proxylab.errors import CapabilityError

GO = """\
#!/bin/sh
# A kube-proxy that says what version it was linked with.
out= version=
for word; do
  case $last in
    -o) out=$word ;;
    -ldflags) version=$(expr "$word" : '.*component-base/version.gitVersion=\\([^ ]*\\)') ;;
  esac
  last=$word
done
[ "$last" = ./cmd/kube-proxy ] && [ "$CGO_ENABLED" = 0 ] || exit 1
printf '#!/bin/sh\\necho Kubernetes %s\\n' "$version" >"$out"
"""


@pytest.fixture
def go(tmp_path: Path) -> str:
    script = tmp_path / "go"
    script.write_text(GO)
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "kubernetes"
    for name in ("go.mod", "cmd/kube-proxy/proxy.go"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    base = folder / "staging/src/k8s.io/component-base/version/base.go"
    base.parent.mkdir(parents=True)
    base.write_text('package version\n\nconst DefaultKubeBinaryVersion = "1.37"\n')
    return folder


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=a test", "-c", "user.email=test@invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *author, *words], check=True, capture_output=True)


def version_of(checkout: Path, go: str) -> str:
    return CheckoutSource(checkout, go).obtain(Cache(checkout.parent / "cache")).version


def test_what_is_a_checkout(checkout: Path) -> None:
    assert is_checkout(checkout)
    assert not is_checkout(checkout / "cmd")
    (checkout / "go.mod").unlink()
    assert not is_checkout(checkout)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_its_version_is_what_git_says_in_the_manner_of_kubernetes(checkout: Path, go: str) -> None:
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "A release")
    git(checkout, "tag", "v1.37.1")
    assert version_of(checkout, go) == "v1.37.1"
    (checkout / "go.mod").write_text("patched\n")
    assert version_of(checkout, go) == "v1.37.1-dirty"
    git(checkout, "commit", "-qam", "A patch")
    after = version_of(checkout, go)
    assert after.startswith("v1.37.1-1+"), after
    assert len(after) == len("v1.37.1-1+") + 14
    git(checkout, "tag", "v1.38.0-alpha.2")
    assert version_of(checkout, go) == "v1.38.0-alpha.2"
    git(checkout, "commit", "-q", "--allow-empty", "-m", "Another")
    assert version_of(checkout, go).startswith("v1.38.0-alpha.2.1+")


def test_without_git_its_version_is_that_of_its_minor(checkout: Path, go: str) -> None:
    assert version_of(checkout, go) == "v1.37.0-unknown"
    shutil.rmtree(checkout / "staging")
    assert version_of(checkout, go) == "v1.0.0-unknown"


def test_a_build_writes_nothing_into_it(checkout: Path, go: str) -> None:
    before = sorted(checkout.rglob("*"))
    binary = CheckoutSource(checkout, go).obtain(Cache(checkout.parent / "cache"))
    assert binary.origin == f"built in {checkout}"
    assert sorted(checkout.rglob("*")) == before


def test_what_was_built_there_last_lies_where_go_will_write(checkout: Path, tmp_path: Path, go: str) -> None:
    """So that Go finds, by the build ID in it, whether there is anything to be linked."""
    Path(go).write_text(GO.replace("printf", '[ -f "$out" ] && version="$version as before"\nprintf'))
    cache = Cache(tmp_path / "cache")
    version = CheckoutSource(checkout, go).obtain(cache).version
    again = CheckoutSource(checkout, go).obtain(cache)
    assert again.path.read_text() == f"#!/bin/sh\necho Kubernetes {version} as before\n"
    other = CheckoutSource(checkout.rename(tmp_path / "another"), go).obtain(cache)
    assert other.path.read_text() == f"#!/bin/sh\necho Kubernetes {version}\n", "of another folder it is not the last"


def test_a_patch_that_does_not_build_is_told(checkout: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'proxier.go:7:2: undefined: chian' >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(CapabilityError, match="undefined: chian"):
        CheckoutSource(checkout, str(go)).obtain(Cache(tmp_path / "cache"))
