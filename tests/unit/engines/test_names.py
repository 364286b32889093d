"""What a user may ask for is what there is."""

from lab.engines.catalogue import _MAKERS
from lab.engines.names import ENGINES
from lab.engines.protocol import EngineChoice


def test_every_name_has_its_maker_and_every_maker_its_name() -> None:
    assert set(ENGINES) == set(_MAKERS)


def test_the_first_is_the_default() -> None:
    assert EngineChoice().name == ENGINES[0]
