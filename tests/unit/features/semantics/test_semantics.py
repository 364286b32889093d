"""Which probes show a promise of Kubernetes: only those that name it and turned red for a mutant of it."""

import json
from html.parser import HTMLParser

from scenario_index import SCENARIOS, SUFFIX, places

from proxylab.engines.engine_names import EMBEDDED, version_of
from proxylab.features.semantics.promise_coverage import (
    Coverage,
    RecordedMutant,
    Row,
    read_mutants,
    semantics,
    to_json,
    to_lines,
)
from proxylab.features.semantics.semantics_page import semantics_page
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.promises import promises

SERVED = "type=ClusterIP/clusterIP/pod/local-endpoint/serve"
PRESERVED = "type=ClusterIP/clusterIP/pod/local-endpoint/preserve-source"
REJECTED = "type=ClusterIP/clusterIP/unused-port/nftables/reject"
TIMEOUT = "sessionAffinityConfig.clientIP.timeoutSeconds/within/stick"
ITEM = "a pod is served"
SCENARIO = f"""
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: one}}
spec:
  network: {{families: [IPv4, IPv6]}}
  matrix: {{family: [IPv4, IPv6]}}
  nodes: {{node-a: {{}}}}
  pods: {{echo: {{labels: {{app: echo}}, ports: [8080]}}, client: {{}}}}
  probes:
  - name: {ITEM}
    from: client
    to: {{service: echo, via: clusterIP}}
    expect: {{outcome: delivered, source: preserved, proves: [{SERVED}, {PRESERVED}, {TIMEOUT}]}}
    except:
    - when: {{mode: nftables}}
      expect: {{outcome: rejected, proves: [{REJECTED}]}}
      because: this test says so
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{selector: {{app: echo}}, ipFamilyPolicy: RequireDualStack, ports: [{{port: 80, targetPort: 8080}}]}}
"""


def rows(*mutants: RecordedMutant) -> dict[str, Row]:
    found = semantics({"one": parse_scenario(SCENARIO, "one.lab.yaml")}, mutants)
    return {row.promise.id: row for row in found}


def mutant(*failed: str, engine: str = "embedded/iptables", setting: str = "") -> RecordedMutant:
    return RecordedMutant(mutation="no rule", engine=engine, setting=setting, red={"one": {ITEM: failed}})


def test_a_promise_without_a_mutant_that_turned_its_probe_red_is_named_and_not_proven() -> None:
    found = rows()
    assert {each for each, row in found.items() if row.coverage is Coverage.NAMED} == {
        SERVED,
        PRESERVED,
        TIMEOUT,
        REJECTED,
    }
    assert found["type=ClusterIP/clusterIP/itself/serve"].coverage is Coverage.NONE
    (showing,) = found[SERVED].showings
    assert (showing.item, showing.modes) == (ITEM, {"iptables", "ipvs", "userspace"})


def test_a_mutant_proves_only_what_the_failed_expectation_is_about() -> None:
    found = rows(mutant("source"))
    assert found[PRESERVED].coverage is Coverage.PROVEN
    assert found[SERVED].coverage is Coverage.NAMED
    assert rows(mutant())[SERVED].coverage is Coverage.NAMED  # what was inconclusive is not red


def test_a_mutant_of_a_mode_proves_only_what_the_probe_expects_in_that_mode() -> None:
    found = rows(mutant("outcome", engine="embedded/nftables"))
    assert found[SERVED].coverage is Coverage.NAMED
    assert found[REJECTED].coverage is Coverage.PROVEN
    assert rows(mutant("outcome"))[REJECTED].coverage is Coverage.NAMED


def test_another_value_of_a_setting_proves_only_what_is_promised_of_that_setting() -> None:
    found = rows(mutant("outcome", "spread", setting="timeoutSeconds: 3"))
    assert found[TIMEOUT].coverage is Coverage.PROVEN
    assert found[SERVED].coverage is Coverage.NAMED


def test_text_json_and_page_have_each_promise_with_its_source_and_probes() -> None:
    table = tuple(rows(mutant("outcome")).values())
    text = to_lines(table, 200)
    assert text[-1] == f"{len(table)} promises: 1 proven, 3 named, not proven, {len(table) - 4} without a probe"
    document = json.loads(to_json(table))
    assert document["counts"] == {"proven": 1, "named": 3, "none": len(table) - 4}
    (served,) = (each for each in document["promises"] if each["id"] == SERVED)
    assert served["probes"][0]["mutants"] == [{"mutation": "no rule", "engine": "embedded/iptables"}]
    assert (served["sender"], served["frontend"], served["state"]) == ("pod", "clusterIP", "local-endpoint")
    page = semantics_page(table)
    HTMLParser().feed(page)
    for row in table:
        assert sum(line.startswith(f"{row.promise.id}  (") for line in text) == 1
        assert page.count(f'id="{row.promise.id}"') == 1
        assert row.promise.source in page


def test_each_promise_has_a_probe_of_the_catalogue_that_turned_red_for_a_mutant_of_it() -> None:
    catalogue = {place: load_scenario(SCENARIOS / f"{place}{SUFFIX}") for place in places()}
    table = semantics(catalogue, read_mutants((SCENARIOS / "mutations.json").read_bytes()), version_of(EMBEDDED[0]))
    assert {row.promise.id: row.coverage for row in table if row.coverage is not Coverage.PROVEN} == {}


def test_a_promise_is_a_sentence_of_a_public_page() -> None:
    pages = ("https://kubernetes.io/docs/", "https://v1-25.docs.kubernetes.io/docs/", "https://github.com/kubernetes/")
    for promise in promises().values():
        assert promise.source.startswith(pages), promise
        assert promise.text.endswith("."), promise
        # One part of each kind: the row is one packet.
        assert not any("," in part for part in (promise.sender, promise.frontend, promise.family, promise.mode)), (
            promise
        )
    texts = [each.text for each in promises().values()]
    assert sorted({each for each in texts if texts.count(each) > 1}) == []
