"""Admission control and overload protection for LLM inference."""
