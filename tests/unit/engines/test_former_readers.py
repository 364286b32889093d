"""The reader that rules replace judges what replaced it, for this commit."""

import former_nftables_mutants as former
from hypothesis import given, settings
from rule_worlds import World, worlds
from thoroughness import examples as many

from proxylab.engines.embedded.nftables import mutants
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.render import render
from proxylab.engines.embedded.nftables.transaction import write_changes, write_table


@given(worlds, worlds)
@settings(max_examples=many(20), deadline=None)
def test_classes_and_mutants_are_the_same_in_the_same_order(before: World, after: World) -> None:
    (family, chosen, node), cluster = before
    first = render(cluster, node, chosen, family)
    second = render(after[1], node, chosen, family)
    for text in (write_table(first, Present(), rehook=True).text, write_changes(second, first).text):
        classes = former.MUTANT_LINES.classes(text)
        assert mutants.MUTANT_LINES.classes(text) == classes
        for line, rule in zip(text.split("\n"), classes, strict=True):
            expected = former.MUTANT_LINES.mutants(rule, line) if rule else {}
            assert not rule or [*mutants.MUTANT_LINES.mutants(rule, line).items()] == [*expected.items()]
