"""``proxylab diff``: who is asked what, and in which order."""

import pytest
from caller import Caller

from proxylab.errors import ExitCode

BOTH = "embedded/iptables,embedded@v1.34/iptables"
STEPS = """  steps:
  - {name: the pod goes, change: {pods: {echo: {ready: false}}}, expect: {conntrack: {none: {replyFrom: echo}}},
     probes: [{name: no pod answers, from: client, to: {pod: echo}, expect: {outcome: delivered, source: preserved}}]}
---
"""


def test_probes_and_steps_are_asked_for_on_every_engine(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    path = caller.folder / "x.lab.yaml"
    path.write_text(path.read_text().replace("---\n", STEPS, 1))
    code, output, errors = caller.type("diff", "x.lab.yaml", "--engines", BOTH)
    assert code == ExitCode.OK
    assert output == "x.lab.yaml: no difference between embedded/iptables, embedded@v1.34/iptables\n"
    assert errors == "x.lab.yaml: 2 probes and 1 step\n"
    asked = [event for event in caller.events() if event.startswith(("probe", "step", "conclude"))]
    assert asked == [
        *("probe one", "probe one"),
        *("step the pod goes", "probe the pod goes: no pod answers") * 2,
        *("conclude the pod goes",) * 2,
    ]


@pytest.mark.parametrize(
    ("engines", "words"),
    [
        ("embedded/iptables", "name two or more engines"),
        ("embedded/iptables,embedded/iptables", "name two or more engines"),
        ("embedded/iptables,foo/iptables", "there is no engine 'foo/iptables'"),
    ],
)
def test_engines_that_cannot_be_compared(caller: Caller, engines: str, words: str) -> None:
    caller.scenario("x.lab.yaml", "one")
    code, _, errors = caller.type("diff", "x.lab.yaml", "--engines", engines)
    assert code == ExitCode.SCENARIO
    assert f"--engines: {words}" in errors


def test_what_is_for_kube_proxy_is_refused_where_none_is_compared(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    code, _, errors = caller.type("diff", "x.lab.yaml", "--engines", BOTH, "--feature-gates", "A=true")
    assert code == ExitCode.SCENARIO
    assert "--feature-gates is for kube-proxy" in errors
