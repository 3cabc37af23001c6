"""Pure model of a continuously batching engine; the simulator and the emulated server step it."""
