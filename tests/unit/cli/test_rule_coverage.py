"""``proxylab run --rule-coverage``: what the run says of rules, as text and as JSON, and what ``merge`` makes of it."""

import json

from caller import Caller

from proxylab.errors import ExitCode

KIND = "nat KUBE-MARK-MASQ -j MARK --set-xmark MARK/MARK"


def test_without_the_option_no_rule_is_read_and_the_document_has_the_keys(caller: Caller) -> None:
    caller.scenario("a.lab.yaml", "holds")
    code, output, _ = caller.type("run", "a.lab.yaml", "-o", "json")
    report = json.loads(output)
    assert code == ExitCode.OK
    assert report["rules"] is None
    assert report["scenarios"][0]["rules"] is None
    assert "rules" not in caller.events()


def test_rules_that_no_probe_met_stand_before_the_summary(caller: Caller) -> None:
    caller.scenario("a.lab.yaml", "holds", "holds, too")
    code, output, _ = caller.type("run", "a.lab.yaml", "--rule-coverage")
    assert code == ExitCode.OK
    assert caller.events().count("rules") == 1, "rules are read once, since no step changes them"
    named, unmet, empty, _ = output.splitlines()[-4:]
    assert named.startswith("a.lab.yaml [embedded/iptables]: probes met 0 of 1 kinds")
    assert (unmet, empty) == (f"  {KIND} (1 of 1)", "")


def test_shards_tell_of_rules_what_the_whole_run_tells(caller: Caller) -> None:
    for name in "ab":
        caller.scenario(f"{name}.lab.yaml", "holds")
    for file, words in {"1.json": ("--shard", "1/2"), "2.json": ("--shard", "2/2"), "whole.json": ("-j", "2")}.items():
        _, output, _ = caller.type("run", ".", "-o", "json", "--rule-coverage", *words)
        (caller.folder / file).write_text(output)
    _, output, _ = caller.type("merge", "1.json", "2.json", "-o", "json")
    merged, whole = json.loads(output), json.loads((caller.folder / "whole.json").read_text())
    assert merged["rules"] == whole["rules"]
    (kind,) = whole["rules"]["embedded/iptables"]["kinds"]
    assert kind == {
        "mode": "iptables",
        "where": "nat KUBE-MARK-MASQ",
        "kind": KIND,
        "rules": 2,
        "met": 0,
        "unmet": ["-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"],
        "without": 2,
    }
    assert whole["scenarios"][0]["rules"]["kinds"] == [{**kind, "rules": 1, "without": 0}]
