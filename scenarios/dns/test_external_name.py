"""An ExternalName Service has no rule in any node."""

import pytest

from proxylab.pytest_plugin import Lab


@pytest.mark.lab("external-name.lab.yaml")
def test_an_external_name_has_no_rule(lab: Lab) -> None:
    (rules,) = lab.rules().values()
    assert "default/web" in rules
    assert "shop/web" not in rules
