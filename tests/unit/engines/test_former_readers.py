"""The readers that rules replace judge what replaced them, for this commit."""

import former_ipvs_mutants
import former_ipvs_texts
from hypothesis import given, settings
from rule_worlds import World, worlds
from thoroughness import examples as many

from proxylab.engines.embedded.ipvs import mutants, texts


@given(worlds)
@settings(max_examples=many(20), deadline=None)
def test_classes_mutants_and_what_is_read_are_the_same(world: World) -> None:
    (family, chosen, node), cluster = world
    text = texts.load(cluster, node, chosen, family, ())
    classes = former_ipvs_mutants.MUTANT_LINES.classes(text)
    assert mutants.MUTANT_LINES.classes(text) == classes
    for line, rule in zip(text.split("\n"), classes, strict=True):
        expected = former_ipvs_mutants.MUTANT_LINES.mutants(rule, line) if rule else {}
        assert not rule or dict(mutants.MUTANT_LINES.mutants(rule, line)) == dict(expected)
    assert texts.read(text) == former_ipvs_texts.read(text)
    assert texts.differences(text + text, text) == former_ipvs_texts.differences(text + text, text)
    for address in (line.split()[1] for line in text.splitlines() if line.startswith("inet")):
        assert texts.without(text, "", [address]) == former_ipvs_texts.without(text, "", [address])
