"""Pytest plugin: checks the ids of ``case`` markers, and lists the cases with ``--cases``."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cases import CASES

__all__ = [
    "CasesReport",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
]

NO_TEST = "no test yet"
NOT_RUN = "not run"
PASSED = "passed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--cases``."""
    parser.addoption(
        "--cases",
        action="store_true",
        help="run only tests marked with a conformance case, and list every case with its outcome",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Switch the report on where ``--cases`` asks for it."""
    if config.getoption("--cases"):
        config.pluginmanager.register(CasesReport(), "cases-report")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse unknown ids always; with ``--cases`` keep only tests of a case."""
    for item in items:
        for case_id in case_ids(item):
            if case_id not in CASES:
                raise pytest.UsageError(
                    f"{item.nodeid}: case {case_id!r} is not in tests/cases.py; use one of its ids"
                )
    if config.getoption("--cases"):
        unmarked = [item for item in items if item.get_closest_marker("case") is None]
        if unmarked:
            config.hook.pytest_deselected(items=unmarked)
            items[:] = [item for item in items if item.get_closest_marker("case") is not None]


def case_ids(item: pytest.Item) -> Iterator[object]:
    """Yield the ids of all ``case`` markers of a test; a marker without an id is an error."""
    for marker in item.iter_markers("case"):
        if not marker.args or marker.kwargs:
            raise pytest.UsageError(f"{item.nodeid}: a case marker takes ids, and only ids")
        yield from marker.args


class CasesReport:
    """Collects the outcome of every test of a case, and prints the table at the end."""

    def __init__(self) -> None:
        self._tests_of_case: dict[str, list[str]] = {case_id: [] for case_id in CASES}
        self._outcomes: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember which tests will show which case."""
        for item in session.items:
            for case_id in case_ids(item):
                # pytest calls this hook also after an unknown id was refused.
                tests = self._tests_of_case.setdefault(str(case_id), [])
                if item.nodeid not in tests:
                    tests.append(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a phase's outcome in: the call decides, unless set-up or tear-down went wrong."""
        if report.skipped:
            self._outcomes[report.nodeid] = _skip_reason(report)
        elif report.failed:
            self._outcomes[report.nodeid] = "failed" if report.when == "call" else "error"
        elif report.when == "call":
            self._outcomes[report.nodeid] = PASSED

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A list in which no case has a test yet is still a list, not an error."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print ``id | test | outcome`` for every case, then the count."""
        rows = list(self.rows())
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        terminalreporter.section("conformance cases")
        for case_id, test, outcome in rows:
            terminalreporter.write_line(f"{case_id:<{widths[0]}} | {test:<{widths[1]}} | {outcome}")
        counts = Counter(self.outcome_of_case(case_id) for case_id in CASES)
        listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        terminalreporter.write_line(f"{len(CASES)} cases: {listed}")

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield one row per test of a case, and one per case without a test."""
        yield ("id", "test", "outcome")
        for case_id, title in CASES.items():
            tests = self._tests_of_case[case_id]
            for test in tests:
                yield (case_id, test, self._outcomes.get(test, NOT_RUN))
            if not tests:
                yield (case_id, f"({title})", NO_TEST)

    def outcome_of_case(self, case_id: str) -> str:
        """Return the outcome of a case: passed only if all its tests ran and passed."""
        outcomes = [self._outcomes.get(test, NOT_RUN) for test in self._tests_of_case[case_id]]
        if not outcomes:
            return NO_TEST
        return PASSED if all(outcome == PASSED for outcome in outcomes) else "not passed"


def _skip_reason(report: pytest.TestReport) -> str:
    reason = getattr(report, "wasxfail", None)
    if reason is not None:
        return f"expected failure: {reason}"
    if isinstance(report.longrepr, tuple):
        return f"skipped: {report.longrepr[2].removeprefix('Skipped: ')}"
    return "skipped"
