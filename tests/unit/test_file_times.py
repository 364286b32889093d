"""``./dev times`` adds the times of a run up, by folder and by file."""

from file_times import times_page

RUN = """<testsuites><testsuite timestamp="2026-11-28T05:26:28.615215+00:00" time="6.1">
<testcase file="scenarios/dns/records.lab.yaml" name="one" time="9.5"/>
<testcase file="scenarios/dns/records.lab.yaml" name="two" time="1.5"/>
<testcase file="tests/unit/test_dev.py" name="three" time="0.25"/>
<testcase file="tests/unit/cli/test_diff.py" name="four" time="0.5"/>
</testsuite></testsuites>"""


def test_a_file_that_takes_long_has_a_row_and_the_others_one_for_each_folder() -> None:
    page = times_page(RUN)
    assert "4 cases took 12 s, in a run of 6 s that began at 2026-11-28T05:26." in page
    assert [line for line in page.splitlines() if line.startswith("| `")] == [
        "| `scenarios` | 11 | 2 |",
        "| `tests/unit` | 1 | 2 |",
        "| `scenarios/dns/records.lab.yaml` | 11 | 2 |",
        "| `tests/unit` | 1 | 2 |",
    ]
