"""What few changes concern, so that ``./dev test`` runs its tests only when a file of it changed, and with ``--all``.

Each concern is a marker of tests. ``tests/conftest.py`` gives it to those of the files in a table here, but not to what
every run keeps. As a command this prints the markers whose tests may be left out, one a line, and says so on standard
error.
"""

import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from changes import ROOT, base_of, changed_since, names_a_changed_scenario

from proxylab.cli.verbs import VERBS

__all__ = ["CONCERNS", "EACH", "Marks", "is_concerned", "of_page", "of_scenario", "unconcerned"]


class Concern(NamedTuple):
    """The files that tests concern, and the tests, by file, with the names of those whose first case every run has.

    A path that ends in a slash is a folder with all that is in it; files in ``but``, such as those of other modes, do
    not count. Without ``tests``, these have the marker themselves, or are the probes of scenarios that have all markers
    of ``of``: of one engine or mode. Every run has those of the scenarios and tags in ``kept``, and of the scenarios
    that changed.
    """

    files: tuple[str, ...]
    tests: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 it is never changed
    of: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


EACH = "each test"
"""In the place of a name."""

_KERNEL = "tests/kernel/test_"
_ATTACKS = "tests/kernel/attacks/"
_ENGINES = "tests/engines/test_"
_MODES = "lab/proxylab/engines/embedded/"
_IPTABLES, _IPVS, _NFTABLES, _USERSPACE = (f"{_MODES}{mode}/" for mode in ("iptables", "ipvs", "nftables", "userspace"))
_REAL = "lab/proxylab/engines/kubeproxy/"
_CAUSES = "lab/proxylab/verdict/causes/"
"""The sentences behind `why:`, on which no judgement rests: the judge imports none of it."""

_WHAT_DECIDES = (
    *(
        f"lab/proxylab/{each}/"
        for each in (
            "cluster",
            "control",
            "engines",
            "evidence",
            "kernel",
            "oracle",
            "plan",
            "rules",
            "scenario",
            "server",
            "traffic",
            "verdict",
        )
    ),
    *(f"lab/proxylab/{each}.py" for each in ("addresses", "capability", "encoding", "errors", "statistics", "timing")),
    "pyproject.toml",
)
"""What decides how a scenario ends. What carries its messages and prints its results shows in any scenario."""

CONCERNS = {
    "binaries": Concern(
        ("lab/proxylab/binaries/", "tests/unit/binaries/"),
        {"tests/unit/binaries/": ()},
    ),
    "browser": Concern(
        (
            "lab/proxylab/report/",
            "lab/proxylab/features/graph/svg.py",
            "tests/browser/",
            "tests/support/browser.py",
        )
    ),
    "catalogue": Concern(_WHAT_DECIDES, of=("engine_embedded", "mode_iptables"), kept=("core",), but=(_CAUSES,)),
    "command_line": Concern(
        (
            "lab/proxylab/accepting.py",
            "lab/proxylab/cli/",
            "lab/proxylab/features/",
            "lab/proxylab/report/",
            "lab/proxylab/scenario/",
            "lab/proxylab/text.py",
            "tests/support/caller.py",
            "tests/support/mangled.py",
        ),
        {
            "tests/unit/cli/test_foreign_text.py": (
                "test_nothing_acts_and_nothing_is_lost",
                "test_scenarios",
                "test_what_is_no_text_gets_one_line",
            ),
            "tests/unit/cli/test_mangled_inputs.py": ("test_each_report_gets_an_answer",),
            "tests/unit/cli/test_written_files.py": (EACH,),
            "tests/unit/cli/test_looking.py": (
                "test_a_case_is_chosen_by_its_id",
                "test_get_writes_text_that_both_versions_of_yaml_read_as_text",
                "test_init_writes_a_scenario_without_mistakes_and_overwrites_nothing",
                "test_plan_says_the_same_as_yaml_and_as_json",
                "test_plan_says_what_is_allocated_and_what_masquerading_gives",
                "test_rules_are_those_of_the_node_that_is_asked_for",
            ),
            "tests/unit/features/import_/test_import_verb.py": (
                "test_what_is_piped_in_comes_out_as_a_scenario",
                "test_what_cannot_be_read",
            ),
        },
    ),
    "completion": Concern(
        ("lab/proxylab/cli/", "lab/proxylab/features/", "tests/kernel/test_standing_lab_commands.py")
    ),
    "control_plane": Concern(
        (
            "lab/proxylab/binaries/control_plane.py",
            "lab/proxylab/cli/kubeconfig.py",
            "lab/proxylab/cli/kubectl.py",
            "lab/proxylab/client/kubernetes.py",
            "lab/proxylab/control/kubernetes/",
            "lab/proxylab/server/added_pods.py",
            "lab/proxylab/server/control_plane.py",
            "lab/proxylab/server/kubernetes.py",
            "lab/proxylab/server/reached_pods.py",
            "tests/kernel/test_clients_of_a_real_api.py",
            "tests/kernel/test_killed_control_planes.py",
            "tests/kernel/test_real_api_under_load.py",
            "tests/kernel/test_real_control_plane.py",
            "tests/kernel/test_who_reaches_a_real_api.py",
        ),
        {
            f"{_KERNEL}clients_of_a_real_api.py": (),
            f"{_KERNEL}killed_control_planes.py": (),
            f"{_KERNEL}real_api_under_load.py": (),
            f"{_KERNEL}real_control_plane.py": (
                "test_a_service_by_kubectl_reaches_the_pods_of_the_lab",
                "test_it_ends_with_the_lab_and_leaves_nothing",
            ),
            f"{_KERNEL}who_reaches_a_real_api.py": (),
        },
    ),
    "defects": Concern(
        (
            f"{_MODES}mutation.py",
            f"{_IPTABLES}mutants.py",
            f"{_NFTABLES}mutants.py",
            "lab/proxylab/features/mutate/",
            "lab/proxylab/mutate/",
        ),
        {
            f"{_ENGINES}mutants_of_kube_proxy.py": (),
            f"{_ENGINES}what_only_nftables_shows.py": (),
            f"{_KERNEL}mutants_of_objects.py": ("test_the_verb_reports_objects_and_fields",),
            f"{_KERNEL}mutants_of_rules.py": ("test_a_lab_keeps_the_mutated_rules_and_a_probe_notices",),
        },
    ),
    "dev_script": Concern(("dev", "tests/unit/test_dev.py")),
    "editor": Concern(("lab/proxylab/scenario/", "tests/editor/")),
    "engines": Concern(
        (
            "lab/proxylab/cluster/",
            "lab/proxylab/control/",
            "lab/proxylab/engines/",
            "lab/proxylab/kernel/netfilter/",
            "lab/proxylab/plan/",
        ),
        {
            f"{_ENGINES}kubectl.py": (),
            f"{_ENGINES}kube_proxy.py": ("test_it_follows_the_cluster", "test_its_end_is_told_with_its_last_lines"),
            f"{_ENGINES}localhost_node_ports.py": (),
            f"{_ENGINES}one_after_another.py": (),
            f"{_ENGINES}programs_of_kube_proxy.py": (),
            f"{_ENGINES}rude_clients.py": (),
            f"{_ENGINES}rule_coverage_of_kube_proxy.py": (),
            f"{_ENGINES}rules_of_scenarios.py": (
                "test_both_write_the_same_rules_for_every_scenario[iptables-all of the changed]",
                "test_both_write_the_same_rules_for_every_scenario[nftables-all of the changed]",
            ),
            f"{_KERNEL}defects.py": (
                "test_each_defect_replaces_code_that_exists",
                "test_every_sentinel_is_a_row",
                "test_no_scenario_is_without_a_mutation_that_turns_it_red",
                "test_the_record_says_nothing_of_other_defects_than_the_tables",
                "test_what_needs_a_decision_turns_red_without_it",
                "test_what_needs_a_setting_turns_red_without_it",
            ),
            f"{_KERNEL}layout_before_1_24.py": ("test_without_a_rule_its_probes_turn_red",),
            f"{_KERNEL}node_work.py": (EACH,),
            f"{_KERNEL}programs_of_nodes.py": ("test_the_users_program_runs_where_the_scenario_names_none",),
            f"{_KERNEL}rule_coverage.py": ("test_rules_of_iptables_are_met_where_they_counted",),
            f"{_KERNEL}rules_load.py": (EACH,),
            f"{_KERNEL}tables_load.py": ("test_every_rendered_table_is_taken",),
            f"{_KERNEL}variants.py": ("test_scenarios_hold_with_each_variant",),
        },
    ),
    "growth": Concern(
        (
            "lab/proxylab/cli/check.py",
            "lab/proxylab/cluster/",
            "lab/proxylab/features/import_/",
            "lab/proxylab/oracle/",
            "lab/proxylab/plan/",
            "lab/proxylab/scenario/",
        ),
        {
            "tests/benchmarks/test_check.py": (),
            "tests/benchmarks/test_large_clusters.py": (),
            "tests/benchmarks/test_many_probes.py": (
                "test_four_times_as_many_probes_take_four_times_as_long[in_one_step-2000]",
            ),
        },
    ),
    "guests": Concern(
        (
            "lab/proxylab/engines/embedded/ipvs/",
            "lab/proxylab/engines/kubeproxy/",
            "lab/proxylab/guest/",
            "lab/proxylab/kernel/netfilter/",
            "scenarios/ipvs/",
            "tests/kernel/guest_runs.py",
        ),
        {
            f"{_ENGINES}ipvs_in_a_guest.py": (
                "test_both_write_the_same_rules_sets_and_virtual_servers[core]",
                "test_every_named_scenario_has_a_case_in_the_mode",
            ),
            f"{_KERNEL}guest.py": ("test_a_scenario_runs_in_a_guest",),
            f"{_KERNEL}ipvs_in_a_guest.py": (),
            f"{_KERNEL}killed_guests.py": (),
            f"{_KERNEL}netem.py": ("test_a_machine_without_netem_skips_the_scenario_with_the_cure",),
            f"{_KERNEL}scenarios_in_a_guest.py": (
                "test_every_named_scenario_has_a_case_in_mode_ipvs",
                "test_mode_ipvs_passes[core]",
                "test_mode_ipvs_passes[rest of the core]",
                "test_what_many_kernels_lack_is_there[SCTP sockets-embedded/iptables]",
            ),
            f"{_KERNEL}mutants_of_objects_in_a_guest.py": (),
            f"{_KERNEL}schedulers_in_a_guest.py": (),
        },
    ),
    "interrupts": Concern(
        (
            "lab/proxylab/cli/",
            "lab/proxylab/client/",
            "lab/proxylab/features/",
            "tests/support/interrupts.py",
            "tests/support/struck_lines.py",
        ),
        {
            "tests/unit/cli/test_jobs.py": (
                "test_the_output_is_that_of_one_after_the_other_whichever_ends_first",
                "test_what_ends_a_worker_has_the_exit_code_that_it_has_without_workers",
            ),
            "tests/unit/cli/test_progress.py": ("test_on_a_terminal_one_line_is_always_the_newest",),
            "tests/unit/cli/test_standard_streams.py": (EACH,),
            "tests/unit/cli/test_struck_lines.py": ("test_an_interrupt_while_python_ends_has_no_traceback",),
        },
    ),
    "judge": Concern(
        (
            "lab/proxylab/evidence/",
            "lab/proxylab/kernel/capture/",
            "lab/proxylab/kernel/netfilter/",
            "lab/proxylab/rules/",
            "lab/proxylab/traffic/",
            "lab/proxylab/verdict/",
            "scenarios/mutations.json",
            "tests/kernel/attacks/",
            "tests/kernel/attacked_lab.py",
            "tests/kernel/attacked_streams.py",
            "tests/kernel/mutant_record.py",
            "tests/kernel/test_recorded_mutants.py",
        ),
        {
            **{
                f"{_ATTACKS}test_{each}.py": (EACH,)
                for each in (
                    "altered_packets",
                    "answers_of_others",
                    "attacks_on_nftables",
                    "attacks_on_userspace",
                    "broken_ways",
                    "chains_of_others",
                    "filters_and_queues",
                    "flows_to_no_endpoint",
                    "health_checks_of_others",
                    "marks_and_sources_of_others",
                    "other_ways_to_the_pod",
                    "requests_through_an_ingress",
                    "rules_of_others",
                )
            },
            f"{_ATTACKS}test_drops_of_the_stack.py": ("test_a_drop_by_a_stack_is_not_taken_for_another",),
            f"{_ATTACKS}test_streams_led_astray.py": (
                "test_a_stream_that_reaches_no_endpoint_fails",
                "test_an_unaltered_lab_passes",
            ),
            f"{_ATTACKS}test_streams_led_by_others.py": (
                "test_a_stream_that_a_rule_of_others_leads_does_not_pass",
                "test_a_stream_that_a_rule_of_others_loses_does_not_pass",
            ),
            f"{_KERNEL}copies.py": ("test_a_copy_that_a_third_node_drops_is_no_pass",),
            f"{_KERNEL}firewalls_of_nodes.py": (EACH,),
            f"{_KERNEL}flows_past_programs.py": (EACH,),
            f"{_KERNEL}foreign_rules.py": (EACH,),
            f"{_KERNEL}it_cannot_lie.py": (EACH,),
            f"{_KERNEL}refused_at_a_node.py": (EACH,),
            f"{_KERNEL}rules_read_back.py": (EACH,),
            f"{_KERNEL}slow_affinity.py": (EACH,),
            f"{_KERNEL}source_ports.py": (EACH,),
        },
        but=(_CAUSES,),
    ),
    "kube_proxy": Concern(
        (
            "lab/proxylab/cluster/",
            "lab/proxylab/control/",
            "lab/proxylab/engines/",
            "lab/proxylab/kernel/netfilter/",
        ),
        of=("engine_kube_proxy",),
        but=(
            _IPVS,
            _USERSPACE,
            *(
                f"{_MODES}{each}.py"
                for each in ("gates", "health", "metrics", "node_work", "ports", "proxier", "sync", "udp")
            ),
            *(f"{package}{each}.py" for package in (_IPTABLES, _NFTABLES) for each in ("fixed", "render", "writer")),
            f"{_IPTABLES}dispatch_rules.py",
            f"{_IPTABLES}service_chains.py",
            f"{_NFTABLES}service.py",
        ),
        kept=(
            "clusterip/from-a-pod",
            "nodeport/traffic-policy-local",
            "loadbalancer/health-check-node-port",
            "health/healthz-of-a-node-being-removed",
            "steps/affinity-timeout-at-a-node-port",
            "steps/proxy-killed-and-restarted",
            "steps/udp-client-outlives-its-backend",
        ),
    ),
    "network": Concern(
        ("lab/proxylab/kernel/netlink/", "lab/proxylab/plan/", "tests/kernel/survey.py"),
        {
            f"{_KERNEL}addresses_answer.py": (),
            f"{_KERNEL}hairpins_and_rejections.py": (),
            f"{_KERNEL}passages.py": (),
            f"{_KERNEL}planned_network.py": ("test_masquerade_takes_the_planned_source",),
            f"{_KERNEL}planned_path.py": (EACH,),
            f"{_KERNEL}realise.py": (
                "test_a_required_sysctl_that_cannot_be_written_is_a_capability",
                "test_the_first_packet_after_a_build_arrives",
                "test_the_kernel_has_what_the_plan_says",
            ),
            f"{_KERNEL}source_selection.py": (),
            f"{_KERNEL}sysctl_parents.py": (EACH,),
        },
    ),
    "nftables_core": Concern(
        (
            "lab/proxylab/cluster/",
            "lab/proxylab/engines/",
            "lab/proxylab/kernel/netfilter/",
            "lab/proxylab/rules/",
        ),
        of=("engine_embedded", "mode_nftables"),
        but=(_IPTABLES, _IPVS, _USERSPACE, _REAL),
        kept=(
            "affinity/client-ip",
            "bugs/92315-neighbours-reach-loopback",
            "clusterip/from-a-pod",
            "externalip/unassigned-address",
            "hairpin/at-every-frontend",
            "loadbalancer/health-check-node-port",
            "loadbalancer/source-ranges",
            "masquerade/once-through-a-tunnel",
            "nodeport/traffic-policy-cluster",
            "nodeport/traffic-policy-local",
            "rejections/at-every-frontend",
            "steps/endpoints-move",
            "steps/nftables-table-deleted",
            "steps/udp-client-outlives-its-backend",
            "terminating/local-policy-fallback",
            "topology/prefer-same-zone",
            "untranslated/other-ports-and-addresses",
        ),
    ),
    "plugin": Concern(
        ("lab/proxylab/pytest_plugin/", "lab/proxylab/report/", "tests/plugin/"),
        {
            f"{_KERNEL}kept_labs.py": ("test_pytest_keeps_the_lab_of_a_failed_item",),
            f"{_KERNEL}python_lab.py": ("test_a_handshake_crosses_the_proxy_and_no_kernel_interferes",),
            "tests/benchmarks/test_collection.py": (),
            "tests/plugin/test_binaries.py": ("test_junit_has_it_in_the_properties_of_each_item",),
            "tests/plugin/test_builds.py": (),
            "tests/plugin/test_failed_at_once.py": (EACH,),
            "tests/plugin/test_other_plugins.py": (),
            "tests/plugin/test_page.py": (
                "test_every_probe_is_on_the_page_in_the_order_of_the_items",
                "test_who_asks_for_no_page_gets_none",
            ),
            "tests/plugin/test_shards.py": ("test_every_file_is_in_one_shard",),
            "tests/plugin/test_themes.py": ("test_each_folder_has_a_line[alone]",),
        },
    ),
    "processes": Concern(
        (
            "lab/proxylab/client/",
            "lab/proxylab/kernel/sandbox/",
            "lab/proxylab/protocol/",
            "lab/proxylab/server/",
            "tests/kernel/killing.py",
        ),
        {
            "tests/benchmarks/test_build.py": ("test_a_lab_stands_within_a_few_times_the_kernels_own_time",),
            f"{_KERNEL}blocked_programs.py": (),
            f"{_KERNEL}descriptors_run_out.py": (),
            f"{_KERNEL}engines_that_hang.py": ("test_the_client_says_what_it_waits_for_and_how_the_log_ends[idles]",),
            f"{_KERNEL}killed_as_ordinary_user.py": (EACH,),
            f"{_KERNEL}killed_as_root.py": (EACH,),
            f"{_KERNEL}leftovers.py": (EACH,),
            f"{_KERNEL}nothing_left.py": ("test_a_run_that_is_left_alone_leaves_nothing",),
            f"{_KERNEL}side_by_side.py": (EACH,),
            f"{_KERNEL}soak.py": (),
            f"{_KERNEL}standing_lab_commands.py": (
                "test_an_engine_s_log_is_printed_and_followed",
                "test_the_lab_is_brought_to_an_edited_file",
                "test_what_crosses_a_device_is_seen_in_every_form",
            ),
            f"{_KERNEL}standing_labs.py": (
                "test_a_lab_runs_serves_one_client_after_another_and_ends",
                "test_nothing_is_left_after_any_process_of_a_lab_is_killed[lab process]",
                "test_only_the_owner_reaches_the_socket",
            ),
            f"{_KERNEL}stuck_labs.py": (
                "test_a_command_in_a_lab_with_a_stopped_process_says_so_and_ends_by_a_signal",
                "test_the_first_verb_after_a_lab_was_killed_says_so",
            ),
        },
    ),
    "reasons": Concern(
        (
            "lab/proxylab/evidence/",
            "lab/proxylab/kernel/netfilter/",
            "lab/proxylab/report/",
            "lab/proxylab/rules/",
            "lab/proxylab/traffic/",
            "lab/proxylab/verdict/",
        ),
        {
            f"{_ATTACKS}test_reasons_that_mislead.py": (EACH,),
            f"{_KERNEL}broken_labs.py": (EACH,),
            f"{_KERNEL}bundles.py": ("test_a_seed_changes_ports_and_payloads_and_brings_them_back",),
            f"{_KERNEL}foreign_rewriting.py": (EACH,),
            f"{_KERNEL}reasons_in_labs.py": ("test_why_names_it",),
            f"{_KERNEL}settings_named.py": ("test_the_setting_follows_the_rule[embedded/iptables]",),
            f"{_KERNEL}stack_drops.py": ("test_an_ordinary_user_is_told_by_counters_alone",),
            f"{_KERNEL}trace.py": ("test_every_rule_is_told_there_and_back",),
            f"{_KERNEL}traced_alike.py": (EACH,),
        },
    ),
    "reproduction": Concern(
        ("lab/proxylab/report/reproduction/", "tests/kernel/failing_probes.py", "tests/kernel/played_scripts.py"),
        {f"{_KERNEL}reproduction.py": ()},
    ),
    "sandbox": Concern(
        (
            "lab/proxylab/client/lab_process.py",
            "lab/proxylab/kernel/sandbox/",
            "lab/proxylab/resource_limits.py",
            "lab/proxylab/server/main.py",
        ),
        {
            f"{_KERNEL}control_groups.py": (
                "test_commands_are_in_the_group_which_goes_with_the_lab",
                "test_no_command_exceeds_the_bounds_of_its_group",
            ),
            f"{_KERNEL}dead_launcher.py": (EACH,),
            f"{_KERNEL}large_loads.py": (),
            f"{_KERNEL}launcher.py": (
                "test_a_command_is_killed_when_its_caller_stops_waiting",
                "test_a_command_sees_its_place_and_nothing_else",
            ),
            f"{_KERNEL}resource_limits.py": ("test_a_machine_without_a_place_to_write",),
            f"{_KERNEL}sandbox.py": (
                "test_a_lab_process_that_dies_is_reported_with_its_last_words",
                "test_nothing_of_the_machine_is_in_reach",
            ),
            f"{_KERNEL}what_a_lab_may_do.py": (
                "test_a_command_in_a_lab_of_root_can_harm_nothing_of_the_machine",
                "test_a_command_in_a_lab_of_root_is_a_user_who_owns_nothing",
            ),
            f"{_KERNEL}what_a_run_needs.py": (),
        },
    ),
    "together": Concern(
        (
            "lab/proxylab/client/open_lab.py",
            "lab/proxylab/evidence/",
            "lab/proxylab/features/audit/",
            "lab/proxylab/traffic/",
            "lab/proxylab/verdict/counted_rules.py",
            "lab/proxylab/verdict/shared_counts.py",
        ),
        {
            f"{_KERNEL}sent_together.py": (
                "test_an_audit_has_the_verdicts_of_its_probes_alone",
                "test_so_has_an_audit_of_a_proxy_with_a_wrong_rule[nat KUBE-SEP]",
                "test_every_wrong_rule_has_its_row",
                "test_so_have_the_probes_of_a_scenario_that_one_moment_has",
            ),
        },
    ),
    "traffic": Concern(
        (
            "lab/proxylab/evidence/",
            "lab/proxylab/kernel/capture/",
            "lab/proxylab/kernel/netfilter/",
            "lab/proxylab/traffic/",
        ),
        {
            f"{_KERNEL}senders.py": ("test_what_arrives_at_a_node_s_own_program_is_seen_behind_its_rules",),
            f"{_KERNEL}traffic.py": (
                "test_flows_are_followed_through_a_dnat_both_ways",
                "test_what_is_not_delivered_has_a_witness",
            ),
        },
    ),
    "userspace_core": Concern(
        (
            "lab/proxylab/cluster/",
            "lab/proxylab/engines/",
            "lab/proxylab/rules/",
            "lab/proxylab/traffic/",
        ),
        of=("mode_userspace",),
        but=(_IPVS, _NFTABLES, _REAL),
        kept=("userspace",),
    ),
    "verbs": Concern(
        (
            "docs/how-to/add-a-verb.md",
            "lab/proxylab/cli/",
            "lab/proxylab/features/",
            "lab/proxylab/kernel/capabilities.py",
            "lab/proxylab/server/timed_changes.py",
            "lab/proxylab/traffic/connection_timer.py",
            "tests/docs/test_added_verb.py",
        ),
        {
            "tests/docs/test_added_verb.py": (),
            f"{_ENGINES}benched_proxies.py": ("test_the_real_kube_proxy_has_every_figure",),
            f"{_ENGINES}gate.py": (),
            f"{_ENGINES}imported_promises.py": (),
            f"{_ENGINES}migrated_proxies.py": (),
            f"{_ENGINES}rules_verb.py": (),
            f"{_KERNEL}audit.py": (EACH,),
            f"{_KERNEL}bench.py": ("test_an_engine_has_every_figure", "test_a_slow_tool_shows_in_every_change"),
            f"{_KERNEL}diagnose.py": ("test_a_node_that_tells_balancers_the_wrong_thing_is_named",),
            f"{_KERNEL}diff.py": (),
            f"{_KERNEL}doctor.py": ("test_it_finds_what_others_find",),
            f"{_KERNEL}examples.py": ("test_the_example_of_the_command_itself_works",),
            f"{_KERNEL}imported.py": ("test_a_cluster_at_the_desk",),
        },
    ),
    "verb_kills": Concern(
        (
            "lab/proxylab/client/",
            "lab/proxylab/kernel/sandbox/",
            "lab/proxylab/protocol/",
            "lab/proxylab/server/",
            "tests/kernel/test_killed_verbs.py",
            "tests/kernel/verb_kills.py",
        )
    ),
    "wheel": Concern(
        (
            "pyproject.toml",
            "lab/proxylab/__init__.py",
            "lab/proxylab/catalogue",
            "lab/proxylab/cli/",
            "lab/proxylab/pytest_plugin/",
            "tests/packaging/",
            "tests/support/installed.py",
        )
    ),
}


class Marks:
    """Which items get the marker of a concern: those of its files that every run does not keep."""

    def __init__(self) -> None:
        self._known = set[tuple[str, str]]()
        self._rows = dict[str, list[tuple[str, tuple[str, ...]]]]()

    def of(self, file: str, function: str, name: str) -> list[str]:
        """The markers of a test by its file, its function and its name, which has the parameters, too."""
        known = (file, function) in self._known
        self._known.add((file, function))
        if file not in self._rows:
            self._rows[file] = [
                (marker, kept)
                for marker, concern in CONCERNS.items()
                for tests, kept in concern.tests.items()
                if _is_in(file, tests)
            ]
        if names_a_changed_scenario(name):
            return []
        return [
            marker
            for marker, kept in self._rows[file]
            if name not in {*kept} - {function} and (known or not {function, EACH} & {*kept})
        ]


def of_scenario(place: str, markers: Collection[str], changed: Collection[str] = ()) -> list[str]:
    """The markers of a probe or step by its scenario's folder and name, and by the markers that it has.

    The probes of a changed scenario have none.
    """
    if place in changed:
        return []
    return [
        marker
        for marker, each in CONCERNS.items()
        if each.of and {*each.of} <= {*markers} and {place, *markers}.isdisjoint(each.kept)
    ]


def is_concerned(paths: Iterable[str], changed: Iterable[str]) -> bool:
    """Whether one of the changed files is one of the paths, or in one of the folders."""
    return any(_is_in(file, path) for file in changed for path in paths)


def unconcerned(changed: Iterable[str]) -> list[str]:
    """The concerns without a changed file."""
    files = [*changed]
    return [
        marker
        for marker, each in CONCERNS.items()
        if not is_concerned(
            (*each.files, *each.tests), [file for file in files if not any(_is_in(file, other) for other in each.but)]
        )
    ]


def _is_in(file: str, path: str) -> bool:
    return file == path or (path.endswith("/") and file.startswith(path))


def of_page(page: Path) -> list[str]:
    """The files that the commands of a page concern: the page, what types them, and the verbs that they name."""
    modules = {VERBS[verb].module for verb in re.findall(r"proxylab ([a-z]+)", page.read_text()) if verb in VERBS}
    return [
        str(page.relative_to(ROOT)),
        "tests/docs/test_commands.py",
        "tests/support/documents.py",
        *(
            f"lab/{module.removesuffix('.verb').replace('.', '/')}" + ("/" if module.endswith(".verb") else ".py")
            for module in sorted(modules)
        ),
    ]


def main(base: str | None) -> None:
    base = base or base_of(ROOT)
    left_out = unconcerned(changed_since(base, ROOT)) if base else []
    if left_out:
        told = (
            f"dev: no file of these changed since {base[:10]}, so './dev test --all' tests them: {', '.join(left_out)}"
        )
        sys.stderr.write(f"{told}\n")
    sys.stdout.writelines(f"{each}\n" for each in left_out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
