"""Tests of how a page of metrics is read."""

from proxylab.server.step import parse_exported

_PAGE = """\
# TYPE sync_proxy_rules_no_local_endpoints_total gauge
sync_proxy_rules_no_local_endpoints_total{traffic_policy="internal"} 2
sync_proxy_rules_no_local_endpoints_total{traffic_policy="external"} 0
# TYPE process_open_fds gauge
process_open_fds 11
"""


def test_all_names_and_the_samples_that_are_asked_for() -> None:
    exported = parse_exported("node-a", _PAGE, ["sync_proxy_rules_no_local_endpoints_total"])
    assert exported.names == ("sync_proxy_rules_no_local_endpoints_total", "process_open_fds")
    assert [(each.labels["traffic_policy"], each.value) for each in exported.samples] == [
        ("internal", 2.0),
        ("external", 0.0),
    ]


def test_a_page_in_another_format_is_a_problem_and_no_traceback() -> None:
    exported = parse_exported("node-a", "queue_length{name=} many\n", ["queue_length"])
    assert exported.samples == ()
    assert exported.problem is not None
    assert exported.problem.startswith("its answer is not in Prometheus' text format: ")
