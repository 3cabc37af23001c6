"""How long will an answer get? Window, coverage and predictor: see ``predictor`` for the rule."""

from __future__ import annotations

from tokenweir.core.lengths.blend import Forecast
from tokenweir.core.lengths.config import LengthConfig, LengthMode
from tokenweir.core.lengths.coverage import LengthCoverage, ModeCoverage
from tokenweir.core.lengths.predictor import LengthPredictor, uniform

__all__ = [
    "Forecast",
    "LengthConfig",
    "LengthCoverage",
    "LengthMode",
    "LengthPredictor",
    "ModeCoverage",
    "uniform",
]
