"""The end of a run says in a line a reason how many tests were skipped, and the cure."""

from plugin_project import Project
from skipped import skip_lines

CURE = "use a kernel that has it, as this one has no such module ('--kernel uml' runs labs on another one)"
NETEM = f"needs netem; {CURE}"
SCTP = [f"needs SCTP sockets, with which {what} connects; {CURE}" for what in ("probe 'a'", "stream 'b'", "probe 'c'")]
OF_MODES = [
    "mode userspace serves one family, and this cluster's first is IPv4",
    "in mode ipvs a node's program gets EMSGSIZE for its first datagram above the MTU",
    "needs a mode of the proxy that removes its rules; choose another engine than one in mode userspace",
    "scenarios/a.lab.yaml has no case for userspace",
]


def test_a_line_a_reason_has_the_number_and_the_cure() -> None:
    assert skip_lines([NETEM, *SCTP, NETEM]) == [f"      3  needs SCTP sockets; {CURE}", f"      2  {NETEM}"]


def test_a_reason_that_all_share_keeps_its_details() -> None:
    reason = "needs nginx, which serves Ingresses; install nginx-light, or nginx"
    assert skip_lines([reason] * 1200) == [f"  1,200  {reason}"]


def test_an_error_of_the_product_is_the_same_lack() -> None:
    reasons = ["needs nginx; 'apt-get install nginx'", "this machine lacks nginx, which serves Ingresses; install it"]
    assert skip_lines(reasons) == ["      2  needs nginx; 'apt-get install nginx'"]


def test_what_no_machine_could_cure_is_one_line() -> None:
    said = f'      4  a mode of the proxy does not do it, which has no cure: "{OF_MODES[0]}", and such'
    assert skip_lines([*OF_MODES, NETEM]) == [f"      1  {NETEM}", said]


def test_a_reason_of_many_lines_is_one() -> None:
    assert skip_lines(["needs files:\n  /a is\n  missing; load\n them"]) == [
        "      1  needs files: /a is missing; load them"
    ]


def test_a_run_ends_with_them_and_says_nothing_without_a_skip(project: Project) -> None:
    conftest = (project.pytester.path / "conftest.py").read_text()
    project.pytester.makeconftest(
        conftest + "\nfrom skipped import Skipped\ndef pytest_configure(config):\n"
        "    config.pluginmanager.register(Skipped())\n"
    )
    project.pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('number', range(3))\n"
        "def test_it(number): number and pytest.skip('needs a moon; wait for night')"
    )
    result = project.run()
    result.stdout.fnmatch_lines(["=* skipped: how many, why, and the cure =*", "      2  needs a moon; wait for night"])
    assert "the cure" not in project.run("-k", "0").stdout.str()
