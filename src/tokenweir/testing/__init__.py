"""Shipped fakes and the emulated engine's server."""
