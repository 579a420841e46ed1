"""Conversions in several threads, and within one another, write the same bytes as one alone.

python -m tests.fuzz.threads 2000 --threads 4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from onnx import ModelProto, TensorProto, helper

import onnxtfl
from tests.unit.tiny_models import onnx_model

SIZES = ("n", "h", "w", "k")


def models() -> Iterator[bytes]:
    """Models with several sizes known only at run time, some of which have no name in the file or come from values.

    Each as ONNX and as TFLite.
    """
    for build in (_reshaped, _windows, _selected, _joined):
        for names in (SIZES, (None, *SIZES[1:]), (None, "a", None, "b")):
            model = build(names).SerializeToString()
            yield from (model, converted(model))


def _reshaped(names: tuple) -> ModelProto:
    n, h, w, k = names
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Concat", ["x", "y"], ["both"], axis=2),
        helper.make_node("Flatten", ["both"], ["flat"], axis=2),
        helper.make_node("ReduceProd", ["shape"], ["count"], keepdims=1),
        helper.make_node("Reshape", ["x", "count"], ["z"]),
    ]
    types = [("x", TensorProto.FLOAT, (n, h, w)), ("y", TensorProto.FLOAT, (n, h, k))]
    return onnx_model(nodes, types, [("flat", TensorProto.FLOAT, None), ("z", TensorProto.FLOAT, None)])


def _windows(names: tuple) -> ModelProto:
    n, h, w, _ = names
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Shape", ["t"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["t", "zeros"], ["z"]),
    ]
    return onnx_model(nodes, [("x", TensorProto.FLOAT, (n, 3, h, w))], [("z", TensorProto.FLOAT, None)])


def _selected(names: tuple) -> ModelProto:
    """NonZero and Slice make sizes of their own."""
    n, h, w, _ = names
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("NonZero", ["y"], ["other"]),
        helper.make_node("Concat", ["where", "other"], ["z"], axis=1),
        helper.make_node("Constant", [], ["axis"], value_ints=[1]),
        helper.make_node("Slice", ["z", "from", "to", "axis"], ["part"]),
    ]
    types = [("x", TensorProto.FLOAT, (n, h)), ("y", TensorProto.FLOAT, (h, w))]
    ends = [(name, TensorProto.INT64, (1,)) for name in ("from", "to")]
    return onnx_model(nodes, [*types, *ends], [("part", TensorProto.INT64, None)])


def _joined(names: tuple) -> ModelProto:
    n, h, w, k = names
    nodes = [
        helper.make_node("MatMul", ["x", "y"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
        helper.make_node("Concat", ["s", "m"], ["c"], axis=1),
        helper.make_node("Range", ["zero", "stop", "one"], ["r"]),
        helper.make_node("NonZero", ["c"], ["z"]),
    ]
    nodes[3:3] = [
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Size", ["c"], ["stop"]),
    ]
    types = [("x", TensorProto.FLOAT, (n, h, w)), ("y", TensorProto.FLOAT, (n, w, k))]
    return onnx_model(nodes, types, [("c", TensorProto.FLOAT, None), ("r", TensorProto.INT64, None), ("z", 7, None)])


def converted(model: bytes, on_progress: Callable[[str], None] | None = None) -> bytes:
    """The bytes of the model in the other format."""
    convert = onnxtfl.tflite_to_onnx if model[4:8] == b"TFL3" else onnxtfl.onnx_to_tflite
    found = convert(model, check=False, load=False, on_progress=on_progress).data
    assert isinstance(found, bytes)
    return found


def nested(model: bytes, others: list[bytes]) -> bytes:
    """As `converted`, while other models are converted between its steps."""
    rest = iter(others)

    def step(name: str) -> None:
        other = next(rest, None)
        if other is not None:
            converted(other)

    return converted(model, step)


def different(count: int, threads: int) -> list[int]:
    """Convert `count` times in `threads`; returns the numbers of those models whose bytes were others than alone."""
    every = list(models())
    alone = [converted(model) for model in every]
    assert len(set(alone)) > 1

    def one(k: int) -> int | None:
        which = k % len(every)
        return None if converted(every[which]) == alone[which] else which

    with ThreadPoolExecutor(threads) as pool:
        return [which for which in pool.map(one, range(count)) if which is not None]


def main() -> int:
    """Convert as the arguments say; returns 1 where bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    started = time.monotonic()
    found = different(options.count, options.threads)
    seconds = time.monotonic() - started
    print(f"{options.count} conversions in {options.threads} threads: {len(found)} differ, {seconds:.0f} s")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
