"""Invariants of the rules of any cluster."""

import re
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from memory_loader import BUILT_IN, MemoryLoader, fresh
from msgspec.structs import replace
from rule_worlds import ZONES, World, clusters, edited, proxies, twice, worlds
from thoroughness import examples as many

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState, read_kernel_state
from proxylab.engines.embedded.iptables.render import Renderer, render
from proxylab.engines.embedded.iptables.restore import restore, restore_changes
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.settings import ProxySettings

# No deadline: the time of an example depends on the machine more than on the rules.
examples = settings(max_examples=many(20), deadline=None)


def written(world: World, held: KernelState | None = None) -> list[str]:
    (family, chosen, node), cluster = world
    return restore(render(cluster, node, chosen, family), held or KernelState()).text.splitlines()


def by_table(lines: list[str]) -> dict[str, list[str]]:
    tables: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.startswith("*"):
            table = line[1:]
        elif line != "COMMIT":
            tables[table].append(line)
    return tables


@given(twice())
@examples
def test_the_order_of_objects_makes_no_difference(pair: tuple[World, World]) -> None:
    world, reordered = pair
    assert written(reordered) == written(world)


@given(worlds)
@examples
def test_every_jump_leads_to_a_chain_and_every_rule_stands_in_one(world: World) -> None:
    for table, lines in by_table(written(world)).items():
        declared = {line.split()[0][1:] for line in lines if line.startswith(":")}
        used = {line.split()[1] for line in lines if line.startswith(("-A", "-I"))}
        targets = {target for line in lines for target in re.findall(r"-j (KUBE-\S+)", line)}
        assert used <= declared | set(BUILT_IN[table])
        assert targets <= declared


@given(worlds)
@examples
def test_no_chain_is_declared_twice_or_left_unused(world: World) -> None:
    for lines in by_table(written(world)).values():
        declared = [line.split()[0][1:] for line in lines if line.startswith(":")]
        assert len(declared) == len(set(declared))
        owned = {name for name in declared if re.match(r"KUBE-(SVC|SVL|EXT|FW|SEP)-", name)}
        assert owned == {t for line in lines for t in re.findall(r"-j (KUBE-(?:SVC|SVL|EXT|FW|SEP)-\S+)", line)}


@given(worlds)
@examples
def test_every_endpoint_of_a_chain_gets_an_equal_share(world: World) -> None:
    cascades: dict[str, list[float]] = defaultdict(list)
    for line in by_table(written(world))["nat"]:
        found = re.match(r"-A (KUBE-SV[CL]-\S+) .*-j KUBE-SEP-", line)
        if found and "--rcheck" not in line:
            probability = re.search(r"--probability (\S+)", line)
            cascades[found[1]].append(float(probability[1]) if probability else 1.0)
    for chain, probabilities in cascades.items():
        left = 1.0
        for probability in probabilities:
            assert abs(left * probability - 1 / len(probabilities)) < 1e-8, chain
            left *= 1 - probability
        assert left == 0.0


@given(worlds)
@examples
def test_node_ports_come_last_in_kube_services(world: World) -> None:
    rules = [line for line in by_table(written(world))["nat"] if line.startswith("-A KUBE-SERVICES ")]
    targets = [line.rsplit(" ", 1)[1] for line in rules]
    assert targets[-1] == "KUBE-NODEPORTS"
    assert sorted(targets, key=lambda target: target == "KUBE-NODEPORTS") == targets


@given(st.lists(worlds, min_size=1, max_size=4))
@examples
def test_a_load_after_any_others_leaves_what_a_first_load_leaves(history: list[World]) -> None:
    """No rule of an earlier cluster stays, and the engine's copy of the kernel state is right."""
    family = history[0][0][0]
    one_family = [world for world in history if world[0][0] is family]
    tables, held = fresh(), KernelState()
    for (_, chosen, node), cluster in one_family:
        ruleset = render(cluster, node, chosen, family)
        tables, held = MemoryLoader._loaded(tables, restore(ruleset, held).text), held.after(ruleset)
    assert {(chain.table.value, chain.name) for chain in held.chains} == {
        (table, chain) for table, chains in tables.items() for chain in chains if chain not in BUILT_IN[table]
    }
    (_, chosen, node), cluster = one_family[-1]
    direct = restore(render(cluster, node, chosen, family), KernelState())
    alone = MemoryLoader._loaded(fresh(), direct.text)
    if "localnet" not in str(alone):
        tables["filter"].pop("KUBE-FIREWALL"), alone["filter"].pop("KUBE-FIREWALL")
    assert tables == alone


@given(worlds)
@examples
def test_what_was_loaded_is_read_back(world: World) -> None:
    (family, chosen, node), cluster = world
    ruleset = render(cluster, node, chosen, family)
    lines = []
    for table, chains in MemoryLoader._loaded(fresh(), restore(ruleset, KernelState()).text).items():
        lines.append(f"*{table}")
        lines += [f":{chain} {'ACCEPT' if chain in BUILT_IN[table] else '-'} [0:0]" for chain in chains]
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
    assert read_kernel_state("\n".join(lines)) == KernelState().after(ruleset)


@given(proxies(), st.data())
@examples
def test_a_partial_sync_after_any_changes_equals_a_full_one(
    proxy: tuple[Family, ProxySettings, NodeFacts], data: st.DataObject
) -> None:
    """Each cluster changes one object of the one before; sometimes the node changes too."""
    family, chosen, node = proxy
    cluster = data.draw(clusters(family))
    renderer = Renderer(family, chosen)
    loaded = renderer.render(cluster, node)
    tables = MemoryLoader._loaded(fresh(), restore(loaded, KernelState()).text)
    for _ in range(data.draw(st.integers(1, 5))):
        cluster = edited(cluster, data.draw(clusters(family)), data)
        node = replace(node, zone=data.draw(st.sampled_from([node.zone, *ZONES])))
        ruleset = renderer.render(cluster, node)
        assert ruleset == render(cluster, node, chosen, family)
        tables = MemoryLoader._loaded(tables, restore_changes(ruleset, loaded).text)
        loaded = ruleset
    assert tables == MemoryLoader._loaded(fresh(), restore(loaded, KernelState()).text)
