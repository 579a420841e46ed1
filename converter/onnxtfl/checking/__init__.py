"""Compare two models, of either format, on the same inputs."""

from onnxtfl.checking.check_models import check_models
from onnxtfl.checking.localize.layers import FirstDifference, LayerError
from onnxtfl.checking.pairing.interface import Layout
from onnxtfl.checking.report import CheckReport, InputUsed, OutputCheck
from onnxtfl.checking.settings import Metric, Settings

__all__ = [
    "CheckReport",
    "FirstDifference",
    "InputUsed",
    "LayerError",
    "Layout",
    "Metric",
    "OutputCheck",
    "Settings",
    "check_models",
]
