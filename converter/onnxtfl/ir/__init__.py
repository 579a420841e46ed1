"""The intermediate representation. Importing it defines all neutral ops, before the modules that use them."""

from onnxtfl.ir import ops

__all__ = ["ops"]
