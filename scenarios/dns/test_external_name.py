"""An ExternalName Service has no rule in any node."""

import pytest

from proxylab.engines.engine_names import mode_of
from proxylab.pytest_plugin import Lab


@pytest.mark.lab("external-name.lab.yaml")
def test_an_external_name_has_no_rule(lab: Lab, lab_engine: str) -> None:
    (rules,) = lab.rules().values()
    assert ("-A -t 10.96.1.1:80" if mode_of(lab_engine) == "ipvs" else "default/web") in rules  # IPVS has no names
    assert "shop/web" not in rules
