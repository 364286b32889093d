"""Each pod of a StatefulSet has a DNS name of its own below the headless Service."""

import pytest

from proxylab.pytest_plugin import Lab


@pytest.mark.lab("a-stateful-set-by-name.lab.yaml")
def test_each_pod_has_its_name_below_the_headless_service(lab: Lab) -> None:
    every = lab.resolve("client", "db")
    own = [address for name in ("db-0", "db-1", "db-2") for address in lab.resolve("client", f"{name}.db")]
    assert len(every) == len(own) == 6
    assert set(every) == set(own)
    assert lab.resolve("client", "db-3.db") == ()
