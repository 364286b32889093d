"""Labs of many engines never stand all at once."""

from proxylab.client.open_labs import OpenLabs


class Slept:
    def __init__(self, name: str, journal: list[str]) -> None:
        self.name = name
        self._journal = journal
        journal.append(f"{name} begins")

    def close_lab(self) -> None:
        self._journal.append(f"{self.name} rests")


def asked_for(names: str) -> list[str]:
    journal: list[str] = []
    awake = OpenLabs(lambda name: Slept(name, journal))
    for name in names:
        assert awake.session(name).name == name
    return journal


def test_three_engines_keep_their_labs() -> None:
    assert asked_for("abcabc") == ["a begins", "b begins", "c begins"]


def test_the_one_asked_for_the_longest_ago_rests_and_is_woken_by_the_next_question() -> None:
    told = asked_for("abcadab")
    assert told == ["a begins", "b begins", "c begins", "d begins", "b rests", "c rests"]


def test_who_rests_is_not_told_again() -> None:
    assert asked_for("abcde").count("a rests") == 1
