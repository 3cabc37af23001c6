"""The case report tells the truth about what ran."""

import pytest

from tests.cases import CASES

CONFTEST = 'pytest_plugins = ["tests.cases_report"]'
INI = """
[pytest]
markers = case(id): conformance case
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A directory of its own in which the plugin is loaded."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini(INI)
    return pytester


def lines_of(result: pytest.RunResult, case_id: str) -> list[list[str]]:
    """The table's rows of one case, as cells."""
    rows = [[cell.strip() for cell in line.split("|")] for line in result.outlines]
    return [row for row in rows if row[0] == case_id]


def test_table_when_tests_pass_fail_and_skip_then_says_which(project: pytest.Pytester) -> None:
    """Each test of a case is listed with its own outcome, a skip with its reason."""
    project.makepyfile(
        test_sample="""
        import pytest

        @pytest.mark.case("CASE-A1")
        def test_good(): pass

        @pytest.mark.case("CASE-A1", "CASE-A2")
        def test_bad(): assert False

        @pytest.mark.case("CASE-A5")
        def test_absent(): pytest.skip("no engine")

        @pytest.mark.case("CASE-A7")
        @pytest.mark.xfail(reason="known")
        def test_known(): assert False

        def test_unmarked(): assert False
        """
    )
    result = project.runpytest_inprocess("--cases")
    assert lines_of(result, "CASE-A1") == [
        ["CASE-A1", "test_sample.py::test_good", "passed"],
        ["CASE-A1", "test_sample.py::test_bad", "failed"],
    ]
    assert lines_of(result, "CASE-A2") == [["CASE-A2", "test_sample.py::test_bad", "failed"]]
    assert lines_of(result, "CASE-A5")[0][2] == "skipped: no engine"
    assert lines_of(result, "CASE-A7")[0][2] == "expected failure: known"
    assert not any("test_unmarked" in line for line in result.outlines)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"{len(CASES)} cases: {len(CASES) - 4} no test yet, 4 not passed" in result.outlines


def test_table_when_setup_or_teardown_breaks_then_case_is_an_error(
    project: pytest.Pytester,
) -> None:
    """A test whose surroundings break does not count as passed."""
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def broken_before(): raise RuntimeError

        @pytest.fixture
        def broken_after():
            yield
            raise RuntimeError

        @pytest.mark.case("CASE-B1")
        def test_before(broken_before): pass

        @pytest.mark.case("CASE-B2")
        def test_after(broken_after): pass
        """
    )
    result = project.runpytest_inprocess("--cases")
    assert lines_of(result, "CASE-B1")[0][2] == "error"
    assert lines_of(result, "CASE-B2")[0][2] == "error"


def test_table_when_no_case_has_a_test_then_lists_all_and_succeeds(
    project: pytest.Pytester,
) -> None:
    """Every known id is listed, also when nothing is marked."""
    project.makepyfile("def test_unmarked(): pass")
    result = project.runpytest_inprocess("--cases")
    assert [lines_of(result, case_id)[0][2] for case_id in CASES] == ["no test yet"] * len(CASES)
    assert result.ret == pytest.ExitCode.OK


def test_table_when_a_run_stops_early_then_the_rest_is_not_run(project: pytest.Pytester) -> None:
    """A test that was never reached is shown as such."""
    project.makepyfile(
        """
        import pytest

        @pytest.mark.case("CASE-C1")
        def test_first(): assert False

        @pytest.mark.case("CASE-C2")
        def test_second(): pass
        """
    )
    result = project.runpytest_inprocess("--cases", "-x")
    assert lines_of(result, "CASE-C2")[0][2] == "not run"


@pytest.mark.parametrize("arguments", [(), ("--cases",)])
@pytest.mark.parametrize("marker", ['case("CASE-Z9")', "case()", "case(CASE=1)"])
def test_marker_when_its_id_is_unknown_then_run_is_refused(
    project: pytest.Pytester, marker: str, arguments: tuple[str, ...]
) -> None:
    """A mistyped id cannot pass silently, with the report or without."""
    project.makepyfile(f"import pytest\n@pytest.mark.{marker}\ndef test_typo(): pass")
    result = project.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
