"""pytest inside pytest, with a session that needs no kernel."""

from pathlib import Path

import fake_lab
import pytest
import yaml
from plugin_project import CONFTEST, Project

PARSER = yaml.CSafeLoader
"""``pytester`` forgets the modules that its inner run imports; PyYAML's extension works for the first import only."""


@pytest.fixture
def project(pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose lab is a fake; see ``fake_lab`` for what it does."""
    if not pytestconfig.pluginmanager.has_plugin("proxylab"):  # run from a checkout that is not installed
        pytester.plugins.append("proxylab.pytest_plugin")
    monkeypatch.setenv("PYTHONPATH", str(Path(fake_lab.__file__).parent))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    journal = pytester.path / "journal"
    pytester.makeconftest(CONFTEST.format(journal=str(journal)))
    return Project(pytester, journal)
