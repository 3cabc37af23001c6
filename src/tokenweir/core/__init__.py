"""Sans-I/O admission policy: decisions and effects are values, time and chance are arguments."""
