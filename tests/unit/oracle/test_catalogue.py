"""Every probe of the catalogue: what its author expects is what the oracle says, or a table says why it is not.

The expectations are written by hand, and kernels have shown them. The oracle is written from Kubernetes' documents. So
each agreement speaks for both. ``differences.yaml`` holds what they see differently, with who departs from the
documents and where that is known.
"""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from oracle_agreement import Compared, compared

from proxylab.cluster.configuration import Mode
from proxylab.scenario.versions import Version

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("differences.yaml").read_text())

NEWEST: Version = (1, 37)
USUAL = [(Mode.IPTABLES, NEWEST), (Mode.NFTABLES, NEWEST)]
FURTHER = [
    (Mode.IPVS, NEWEST),
    (Mode.IPVS, (1, 30)),
    (Mode.IPTABLES, (1, 25)),
    (Mode.IPTABLES, (1, 29)),
    (Mode.IPTABLES, (1, 33)),
    (Mode.NFTABLES, (1, 32)),
    (Mode.NFTABLES, (1, 35)),
]
"""The same on other modes and versions than the newest."""


@cache
def results(mode: Mode, version: Version) -> tuple[Compared, ...]:
    return tuple(compared(mode, version))


@pytest.mark.parametrize(
    ("mode", "version"), [*USUAL, *(pytest.param(*each, marks=pytest.mark.thorough) for each in FURTHER)], ids=str
)
def test_the_oracle_says_what_the_catalogue_expects(mode: Mode, version: Version) -> None:
    found = results(mode, version)
    surprising = [str(each) for each in found if each.differences and each.id not in TABLE["expectations"]]
    unknown = {each.because for each in found if each.because} - TABLE["proxies"].keys()
    unreached = Counter(each.outside for each in found if each.outside)
    agreeing = sum(not (each.outside or each.differences or each.because) for each in found)
    print(f"{mode} {'.'.join(map(str, version))}: {agreeing} of {len(found)} probes agree")  # noqa: T201
    print(f"  {sum(bool(each.because) for each in found)} are of a proxy that differs from the documents, as noted")  # noqa: T201
    for reason, number in unreached.most_common():
        print(f"  {number} outside: {reason}")  # noqa: T201
    assert surprising == []
    assert unknown == set(), "the oracle disagrees with a reason of the catalogue that differences.yaml lacks"
    assert set(unreached) <= set(TABLE["outside"]), "a new reason is outside the oracle's reach"
    assert agreeing > 0.85 * len(found)


def test_the_oracle_reaches_almost_all_probes_of_the_usual_modes() -> None:
    for mode, version in USUAL:
        found = results(mode, version)
        assert sum(not each.outside for each in found) > 0.9 * len(found)


def test_only_what_is_open_has_several_outcomes() -> None:
    """Else an agreement would say little. Where one of two endpoints does not listen, half of the flows are refused."""
    found = [each for usual in USUAL for each in results(*usual) if each.is_open]
    assert 0 < len(found) < 20
    assert [str(each) for each in found if each.rows.isdisjoint({"ranges-without-endpoints", "nothing-listens"})] == []


def test_no_row_of_the_table_is_idle() -> None:
    found = [each for usual in USUAL for each in results(*usual)]
    expectations = {each.id for each in found if each.differences}
    assert TABLE["expectations"].keys() - expectations == set()


@pytest.mark.parametrize("kind", ["expectations", "proxies"])
def test_every_difference_has_a_link(kind: str) -> None:
    assert [name for name, row in TABLE[kind].items() if not row["link"].startswith("https://")] == []
