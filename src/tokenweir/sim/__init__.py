"""Discrete-event twin: drives the core's own policy objects against the engine model."""
