"""Arrays in the element types of the source, for a result whose inputs and outputs have other types, by its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.harness.litert import Array


class IoTypes:
    """The changed element types in the report of a conversion."""

    def __init__(self, report: Any) -> None:
        types = {type_.name: type_ for type_ in report.io_types}
        self.inputs = [types.get(tensor.name) for tensor in report.inputs]
        self.outputs = [types.get(tensor.name) for tensor in report.outputs]

    def given(self, arrays: Sequence[Array]) -> list[Array]:
        """Inputs of the source, converted to the types of the result."""
        if len(arrays) != len(self.inputs):
            return list(arrays)
        return [a if t is None else t.to_result(a) for t, a in zip(self.inputs, arrays, strict=True)]

    def read(self, arrays: Sequence[Array]) -> list[Array]:
        """Outputs of the result in the types of the source; RuntimeError for a value outside of the type."""
        found = list(arrays)
        for i, type_ in enumerate(self.outputs):
            if type_ is not None:
                found[i] = type_.to_source(arrays[i])
                if not np.array_equal(type_.to_result(found[i]), arrays[i], equal_nan=True):
                    raise RuntimeError(f"output {i} has values that {type_.source} does not have")
        return found
