"""Garbled .tflite files: read and written, or refused in one line; never a traceback, a hang or much memory."""

from __future__ import annotations

import io
import os
import random
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import OnnxtflError
from onnxtfl.formats.tflite.reader import read
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph, State, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor

CORPUS = Path(os.environ.get("ONNXTFL_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
SECONDS = float(os.environ.get("ONNXTFL_FUZZ_SECONDS", "5"))
SLOWEST = 5.0


class Nowhere(io.RawIOBase):
    def write(self, content: Any) -> int:
        return memoryview(content).nbytes


def of_everything() -> bytes:
    """A small file that has most kinds of tables in it."""

    def branch() -> Graph:
        graph = Graph("branch")
        x = graph.add_input(tensor("float32", 2, 4), "inner")
        graph.outputs = Builder(graph).foreign("tfl", "NEG", [x], [x.type])
        return graph

    graph = Graph()
    build = Builder(graph)
    x = graph.add_input(TensorType(DType.FLOAT32, (symbol("n"), 4)), "x")
    condition = graph.add_input(tensor("bool"), "condition")
    weight = constant(np.ones((4, 4), np.int8), name="weight")
    weight.type = TensorType(DType.FLOAT32, (4, 4), Quantization("int8", (0.5, 1.0, 2.0, 4.0), (0, 0, 0, 0), 0))
    state = Value(tensor("float32", 1, 4), "state")
    graph.states.append(State(state, state))
    kinds = [tensor("float32", 2, 4)]
    (dense,) = build.foreign("tfl", "FULLY_CONNECTED", [x, weight, None], kinds, keep_num_dims=True)
    (reshaped,) = build.foreign("tfl", "RESHAPE", [dense, [2, 4]], kinds, new_shape=(2, 4))
    (chosen,) = build.foreign(
        "tfl", "IF", [condition, reshaped], kinds, then_subgraph_index=branch(), else_subgraph_index=branch()
    )
    (own,) = build.foreign("tfl", "custom:Own", [chosen, state], kinds, custom_options=b"\x01\x02\x03")
    graph.outputs = [own, constant(np.array(["a", "bc"], object), name="text")]
    out = io.BytesIO()
    write(Model(graph, properties={"notes": b"anything"}), out)
    return out.getvalue()


def seeds() -> list[bytes]:
    """The file of everything, and small ones of the corpus where it is there."""
    archive = CORPUS / "tflite-ops.zip"
    if not archive.exists():
        return [of_everything()]
    with zipfile.ZipFile(archive) as files:
        names = [i.filename for i in files.infolist() if i.filename.endswith(".tflite") and i.file_size < 8000]
        return [of_everything(), *(files.read(name) for name in sorted(names))]


def attempt(content: bytes) -> bool:
    """Whether the file is read and written; any error but ours goes through."""
    start = time.monotonic()
    try:
        write(read(content), Nowhere())
    except OnnxtflError as error:
        assert "\n" not in str(error)
        return False
    finally:
        assert time.monotonic() - start < SLOWEST
    return True


def mutants(seed: int) -> Iterator[bytes]:
    """Files with flipped bits, bytes of other value, and words from elsewhere in the file."""
    originals, chance = seeds(), random.Random(seed)
    while True:
        content = bytearray(chance.choice(originals))
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            place, source = chance.randrange(len(content)), chance.randrange(len(content))
            kind = chance.randrange(4)
            if kind == 0:
                content[place] ^= 1 << chance.randrange(8)
            elif kind == 1:
                content[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            else:
                content[place : place + 4] = content[source : source + 4]
        yield bytes(content)


def test_a_file_cut_anywhere_is_refused() -> None:
    content = of_everything()
    assert attempt(content)
    for length in range(len(content)):
        assert not attempt(content[:length]), length


def test_each_byte_changed() -> None:
    content = of_everything()
    for place in range(len(content)):
        for value in (0xFF, content[place] ^ 1):
            attempt(content[:place] + bytes([value]) + content[place + 1 :])


@pytest.mark.parametrize("seed", [1])
def test_mutated_files(seed: int) -> None:
    end, count, read_count = time.monotonic() + SECONDS, 0, 0
    for content in mutants(seed):
        count, read_count = count + 1, read_count + attempt(content)
        if time.monotonic() > end:
            break
    assert count > 100
    assert read_count < count
