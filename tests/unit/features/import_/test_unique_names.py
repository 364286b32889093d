"""Names of one label each, and each only once."""

from hypothesis import given
from hypothesis import strategies as st

from proxylab.features.import_.conversion import GivenNames
from proxylab.scenario.syntax import is_label


def test_the_first_that_is_free_and_fits() -> None:
    names = GivenNames()
    assert names.of(("node", "n.example.com"), "n.example.com", "n") == "n"
    assert names.of(("pod", "a", "db-0"), "db-0", "a-db-0") == "db-0"
    assert names.of(("pod", "b", "db-0"), "db-0", "b-db-0") == "b-db-0"
    assert names.of(("pod", "c", "n"), "n", "n") == "n-2"


def test_the_same_thing_keeps_its_name() -> None:
    names = GivenNames()
    assert names.of(("pod", "a", "x"), "x") == names.of(("pod", "a", "x"), "y") == "x"


@given(st.lists(st.text("abcXYZ019.-_", min_size=1, max_size=253), min_size=1, max_size=12))
def test_any_name_becomes_one_that_a_scenario_can_have(wanted: list[str]) -> None:
    names = GivenNames()
    given_out = [names.of((str(number),), f"x{each}") for number, each in enumerate(wanted)]
    assert all(map(is_label, given_out))
    assert len(set(given_out)) == len(given_out)
