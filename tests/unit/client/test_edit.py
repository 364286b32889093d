"""Which probes an edited file concerns."""

from dataclasses import dataclass

import pytest

from proxylab.client.edit import concerned, edit
from proxylab.plan.assembly import assemble
from proxylab.scenario.load import parse_scenario

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: x}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - {name: one, from: client, to: {service: one, via: clusterIP}, expect: {outcome: dropped}}
  - {name: two, from: client, to: {service: default/two, via: clusterIP}, expect: {outcome: dropped}}
  - {name: pod, from: client, to: {pod: echo}, expect: {outcome: dropped}}
---
apiVersion: v1
kind: Service
metadata: {name: one}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: two}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
STEPS = """\
  steps:
  - name: later
    change: {engines: {node-a: restart}}
    probes:
    - {name: in it, from: client, to: {service: one, via: clusterIP}, expect: {outcome: dropped}}
"""


TO_ONE = "{service: one, via: clusterIP}, expect: {outcome: "
ONE, TWO = ("metadata: {name: one}\nspec: {", "metadata: {name: two}\nspec: {")


@dataclass
class Editor:
    """A file before and after an edit."""

    before: str = TEXT

    def concerns(self, old: str, new: str) -> list[str]:
        assert old in self.before
        before, after = (parse_scenario(text, "x.lab.yaml") for text in (self.before, self.before.replace(old, new, 1)))
        found = edit(assemble(before), 0, after)
        assert found.refused == ()
        return [each.name for each in concerned(assemble(before).scenario, found.scenario, found.advance)]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("apiVersion", "# a remark\napiVersion", []),
        ("name: one, from: client", "name: one, from: node-a", ["one"]),
        ("name: pod,", "name: another,", ["another"]),
        (f"{TO_ONE}dropped", f"{TO_ONE}rejected", ["one"]),
        (TWO, f"{TWO}sessionAffinity: ClientIP, ", ["two", "pod"]),
        (f"{ONE}selector: {{app: echo}}", f"{ONE}selector: {{app: none}}", ["one", "pod"]),
        ("node-b: {}", "node-b: {sysctls: {net.ipv4.ip_forward: 0}}", ["one", "two", "pod"]),
    ],
)
def test_an_edit_concerns_what_it_changes_and_what_dials_that(old: str, new: str, names: list[str]) -> None:
    assert Editor().concerns(old, new) == names


def test_steps_and_their_probes_are_concerned_together() -> None:
    editor = Editor(TEXT.replace("---\n", f"{STEPS}---\n", 1))
    assert editor.concerns("name: later", "name: much later") == ["in it"]
    assert editor.concerns(TWO, f"{TWO}sessionAffinity: ClientIP, ") == ["two", "pod", "in it"]
    assert editor.concerns("name: one, from: client", "name: one, from: node-a") == ["one"]


def test_a_node_gets_the_addresses_of_the_file_again_that_a_step_has_taken() -> None:
    steps = STEPS.replace("{engines: {node-a: restart}}", "{nodes: {node-a: {internalIPs: [172.18.0.77]}}}")
    written = TEXT.replace("---\n", f"{steps}---\n", 1)
    stands, wanted = assemble(parse_scenario(written, "x.lab.yaml")), parse_scenario(written, "x.lab.yaml")
    assert edit(stands, 0, wanted).changes == ()
    found = edit(stands, 1, wanted)
    own = stands.addresses["node-a"][:1]
    assert found.advance.change.nodes["node-a"].internal_ips == own
    assert [line for line in found.changes if str(own[0]) in line]
