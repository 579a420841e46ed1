"""Renaming of inputs and outputs.

::

    x: image, y: scores   (%x) -> %y   becomes   (%image) -> %scores
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxtfl.errors import UsageError, suggestion
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.metadata import Metadata
from onnxtfl.rewriting.sections import new_names


def rename_boundary(graph: Graph, names: Mapping[str, str]) -> None:
    """Rename inputs and outputs: old name -> new name. UsageError for an unknown name or a name in use."""
    if not names:
        return
    outputs = graph.names_of_outputs
    old = {value.name or "" for value in graph.inputs} | set(outputs)
    _check(names, old)
    for value in graph.inputs:
        value.name = names.get(value.name or "", value.name)
    graph.output_names = new_names(outputs, names)


def renamed_metadata(metadata: Metadata, names: Mapping[str, str]) -> Metadata:
    """Return metadata with the new names of inputs and outputs."""
    descriptions = {names.get(name, name): text for name, text in metadata.descriptions.items()}
    found = replace(metadata, descriptions=descriptions)
    if found.tflite is not None:
        inputs, outputs = (tuple(new_names(side, names)) for side in (found.tflite.inputs, found.tflite.outputs))
        found.tflite = replace(found.tflite, inputs=inputs, outputs=outputs)
    return found


def _check(names: Mapping[str, str], old: set[str]) -> None:
    unknown = next((name for name in names if name not in old), None)
    if unknown is not None:
        hint = suggestion(unknown, sorted(old), "the inputs and outputs")
        raise UsageError(f"the result has no input or output {unknown!r}", hint=hint, code="E-USE-003")
    taken = {name.casefold() for name in old}
    for name, new in names.items():
        if new.casefold() in taken and new.casefold() != name.casefold():
            raise UsageError(
                f"{name!r} cannot be called {new!r}, as another input or output is", hint="use another name"
            )
        taken.add(new.casefold())
