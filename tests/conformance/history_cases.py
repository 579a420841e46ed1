"""The op tests that shipped with older releases of onnx, from the corpus (onnx-history/onnx-VERSION.zip).

Each archive has CASE/model.onnx, CASE/io.npz (K_iJ and K_oJ: input and output J of data set K) and CASE/case.json.
"""

from __future__ import annotations

import io
import json
import zipfile

import ml_dtypes
import numpy as np
import onnx

from tests.conformance.cases import Case, is_random
from tests.harness.litert import Array
from tests.models.corpus import CORPUS

FOLDER = CORPUS / "onnx-history"
_NARROW = {
    onnx.TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    onnx.TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    onnx.TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    onnx.TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    onnx.TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    onnx.TensorProto.INT4: ml_dtypes.int4,
    onnx.TensorProto.UINT4: ml_dtypes.uint4,
}
"""The types that NumPy lacks: the archives have bfloat16 as its bits, the others as float32."""


def load_history_cases() -> list[Case]:
    """All cases, sorted by name (VERSION__KIND__NAME); none without the corpus."""
    found = [case for path in sorted(FOLDER.glob("onnx-*.zip")) for case in _read_archive(zipfile.ZipFile(path))]
    return sorted(found, key=lambda case: case.name)


def _read_archive(archive: zipfile.ZipFile) -> list[Case]:
    with archive:
        folders = sorted({name.split("/")[0] for name in archive.namelist()})
        return [_read(archive, folder) for folder in folders]


def _read(archive: zipfile.ZipFile, folder: str) -> Case:
    facts = json.loads(archive.read(f"{folder}/case.json"))
    data = archive.read(f"{folder}/model.onnx")
    model = onnx.load_from_string(data)
    known = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in known]
    with np.load(io.BytesIO(archive.read(f"{folder}/io.npz")), allow_pickle=True) as arrays:
        stored = {key: arrays[key] for key in arrays.files}
    sets = tuple(
        (_side(stored, f"{k}_i", inputs), _side(stored, f"{k}_o", model.graph.output)) for k in range(facts["sets"])
    )
    return Case(
        name=facts["name"],
        ops=tuple(node.op_type for node in model.graph.node),
        model=data,
        data_sets=sets,
        rtol=facts["rtol"],
        atol=facts["atol"],
        random=is_random(model, sets),
        types=frozenset(v.type.tensor_type.elem_type for v in [*inputs, *model.graph.output]),
    )


def _side(stored: dict[str, Array], prefix: str, values: list[onnx.ValueInfoProto]) -> tuple[Array, ...]:
    return tuple(_typed(stored[f"{prefix}{i}"], value) for i, value in enumerate(values) if f"{prefix}{i}" in stored)


def _typed(array: Array, value: onnx.ValueInfoProto) -> Array:
    dtype = _NARROW.get(value.type.tensor_type.elem_type)
    if array.dtype.kind == "U":
        return array.astype(object)
    if dtype is None:
        return array
    return array.view(dtype) if array.dtype == np.uint16 else array.astype(dtype)
