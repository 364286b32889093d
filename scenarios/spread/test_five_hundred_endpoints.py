"""The probabilities of 500 endpoints are distinct in the kernel, and give each endpoint the same share.

https://github.com/kubernetes/kubernetes/pull/83599: with five decimals, as kube-proxy wrote them, they were not.
"""

import re
from typing import Final

import pytest

from proxylab.pytest_plugin import Lab

ENDPOINTS: Final = 500
FAMILIES: Final = 2
SHARE: Final = pytest.approx(1 / ENDPOINTS, abs=1e-7)
"""With ten decimals; with five, the shares are up to 5e-6 apart."""


@pytest.mark.lab("five-hundred-endpoints.lab.yaml")
def test_each_endpoint_has_its_own_probability_and_the_same_share(lab: Lab) -> None:
    rules = lab.rules()["node-a"]
    if lab.mode == "nftables":  # a random number chooses among all of them at once
        assert len(re.findall(rf"numgen random mod {ENDPOINTS} v?map", rules)) == FAMILIES
        return
    found = [float(each) for each in re.findall(r"-A KUBE-SVC-\S+ .*--probability (\S+)", rules)]
    by_family = [found[at : at + ENDPOINTS - 1] for at in range(0, len(found), ENDPOINTS - 1)]
    assert [len(set(each)) for each in by_family] == [ENDPOINTS - 1] * FAMILIES
    for probabilities in by_family:
        left, shares = 1.0, []
        for probability in probabilities:
            shares.append(left * probability)
            left -= shares[-1]
        assert shares == [SHARE] * len(shares)
