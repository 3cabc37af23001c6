"""Which engine profile describes what was measured? ``fit.py`` finds it, ``formats/`` reads it."""
