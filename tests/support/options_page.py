"""The reference page of the pytest plugin's options, made from the plugin's own declarations."""

from typing import Any

from proxylab.pytest_plugin.markers import MARKERS
from proxylab.pytest_plugin.options import add_options

__all__ = ["options_page"]

_HEAD = """\
# Options of pytest

Each option can stand on the command line, in the environment, or in pytest's ini file (`pytest.ini`,
`pyproject.toml`), in this order of precedence. `--lab-engine` is `LAB_ENGINE` in the environment and `lab_engine`
in the ini file; `--lab-kube-proxy` is `LAB_KUBE_PROXY` and `lab_kube_proxy`. A flag is set by `1` in the
environment and by `true` in the ini file; there, values that may be repeated are separated by spaces.

| option | meaning |
|---|---|
"""
_MARKERS = """
## Markers

`-m` selects by content, such as `-m "mode_nftables and ipv6"`. The `tags` of scenarios are markers, too.

| marker | on |
|---|---|
"""


class _Recorder:
    """What ``add_options`` needs of pytest's parser."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[str, str]] = {}

    def getgroup(self, *_: object) -> "_Recorder":
        return self

    def addini(self, *_: object, **__: object) -> None:
        """The ini keys follow from the options' names."""

    def addoption(self, name: str, *, help: str, metavar: str = "", **_: Any) -> None:  # noqa: A002 - as pytest calls it
        self.options[name] = metavar, help


def options_page() -> str:
    """A row for each option, and one for each marker."""
    recorder = _Recorder()
    add_options(recorder)  # type: ignore[arg-type]
    rows = [
        f"| `{' '.join(filter(None, (name, metavar)))}` | {meaning} |"
        for name, (metavar, meaning) in sorted(recorder.options.items())
    ]
    markers = [f"| `{name}` | {meaning} |" for name, meaning in MARKERS.items()]
    return _HEAD + "\n".join([*rows, _MARKERS.rstrip("\n"), *markers, ""]).replace("NODE|POD|HOST", "NODE\\|POD\\|HOST")
