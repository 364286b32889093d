"""Each scenario file is parsed by one worker, and no worker depends on another's life."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scenario_text import scenario_text

from lab.errors import ScenarioError
from lab.pytest_plugin.parsing import Parsing
from lab.scenario.load import load_scenario
from lab.scenario.model import Scenario


@dataclass
class Worker:
    """A worker that notes what it parses, and what else happens meanwhile."""

    shared: Path | None
    files: list[Path]
    parsed: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.parsing = Parsing(self.parse, self.shared)
        for file in self.files:
            self.parsing.announce(file)

    def parse(self, path: Path) -> Scenario:
        self.parsed.append(path.name)
        happens, self.meanwhile = self.meanwhile, lambda: None
        happens()
        return load_scenario(path)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"{name}.lab.yaml" for name in "abcd"]
    for each in made:
        each.write_text(scenario_text(f"of {each.name}", name=each.name[0]))
    return made


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    place = tmp_path / "shared"
    place.mkdir()
    return place


def test_what_one_worker_has_parsed_the_others_load(files: list[Path], shared: Path) -> None:
    first, second = Worker(shared, files), Worker(shared, files)
    for file in files:
        assert first.parsing.scenario(file) == second.parsing.scenario(file) == load_scenario(file)
    assert (first.parsed, second.parsed) == ([file.name for file in files], [])


def test_who_wants_what_another_has_begun_parses_something_else(files: list[Path], shared: Path) -> None:
    first, second = Worker(shared, files), Worker(shared, files)
    first.meanwhile = lambda: made.append(second.parsing.scenario(files[0]))
    made: list[Scenario] = []
    first.parsing.scenario(files[0])
    assert made == [load_scenario(files[0])]
    assert second.parsed == ["b.lab.yaml", "c.lab.yaml", "d.lab.yaml", "a.lab.yaml"], "nobody has finished the first"
    for file in files[1:]:
        first.parsing.scenario(file)
    assert first.parsed == ["a.lab.yaml"]


def test_who_helps_goes_back_as_soon_as_what_it_wants_is_there(files: list[Path], shared: Path) -> None:
    first, second = Worker(shared, files), Worker(shared, files)
    begun = next(iter(first.parsing._waiting.values()))
    assert first.parsing._begin(begun)
    second.meanwhile = lambda: first.parsing._finish(begun) and None
    assert second.parsing.scenario(files[0]) == load_scenario(files[0])
    assert second.parsed == ["b.lab.yaml"]


def test_mistakes_are_told_by_each_worker(files: list[Path], shared: Path) -> None:
    files[1].write_text(files[1].read_text().replace("from: client", "from: cleint"))
    first, second = Worker(shared, files), Worker(shared, files)
    first.meanwhile = lambda: second.parsing.scenario(files[0]) and None  # which tries the broken one by the way
    first.parsing.scenario(files[0])
    for worker in (first, second):
        with pytest.raises(ScenarioError, match="cleint"):
            worker.parsing.scenario(files[1])


def test_a_file_that_has_changed_is_another(files: list[Path], shared: Path) -> None:
    Worker(shared, files).parsing.scenario(files[0])
    files[0].write_text(scenario_text("another", name="a"))
    assert [each.name for each in Worker(shared, files).parsing.scenario(files[0]).probes] == ["another"]


@pytest.mark.parametrize("announced", [True, False])
def test_who_works_alone_shares_nothing(files: list[Path], shared: Path, announced: bool) -> None:
    for place in (None, shared):
        worker = Worker(place, files if announced and place is None else [])
        worker.parsing.scenario(files[0])
        assert worker.parsed == ["a.lab.yaml"]
    assert list(shared.iterdir()) == []


def test_a_file_that_cannot_be_read_is_told_when_it_is_asked_for(tmp_path: Path, shared: Path) -> None:
    worker = Worker(shared, [tmp_path / "none.lab.yaml"])
    with pytest.raises(ScenarioError):
        worker.parsing.scenario(tmp_path / "none.lab.yaml")
