"""Shared by all tests: the conformance case plugin."""

pytest_plugins = ["tests.cases_report", "pytester"]
