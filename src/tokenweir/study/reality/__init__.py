"""Does the simulator do what real engines did? Measured runs beside simulated ones."""
