"""The demo: engine, gateway and load as real processes, with and without admission."""
