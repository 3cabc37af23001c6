"""Protocols that the edges provide to the driver: clock, telemetry, stores, sinks."""
