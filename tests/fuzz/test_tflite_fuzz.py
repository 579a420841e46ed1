"""Corrupt .tflite files: read and written, or a one-line OnnxtflError; no other exception, no hang."""

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
from onnxtfl.ir.metadata import Metadata
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor

CORPUS = Path(os.environ.get("ONNXTFL_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
SECONDS = float(os.environ.get("ONNXTFL_FUZZ_SECONDS", "5"))
SLOWEST = 5.0


class NullFile(io.RawIOBase):
    def write(self, content: Any) -> int:
        return memoryview(content).nbytes


def sample() -> bytes:
    """A small file with most kinds of tables."""

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
    write(Model(graph, metadata=Metadata(properties={"notes": b"anything"})), out)
    return out.getvalue()


def seeds() -> list[bytes]:
    """`sample`, and the small files of the corpus where it exists."""
    archive = CORPUS / "tflite-ops.zip"
    if not archive.exists():
        return [sample()]
    with zipfile.ZipFile(archive) as files:
        names = [i.filename for i in files.infolist() if i.filename.endswith(".tflite") and i.file_size < 8000]
        return [sample(), *(files.read(name) for name in sorted(names))]


def attempt(content: bytes) -> bool:
    """Whether the file is read and written; exceptions other than OnnxtflError propagate."""
    start = time.monotonic()
    try:
        write(read(content), NullFile())
    except OnnxtflError as error:
        assert "\n" not in str(error)
        return False
    finally:
        assert time.monotonic() - start < SLOWEST
    return True


def mutants(seed: int) -> Iterator[bytes]:
    """Files with flipped bits, changed bytes, and words copied from other positions."""
    originals, chance = seeds(), random.Random(seed)
    while True:
        content = bytearray(chance.choice(originals))
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            position, source = chance.randrange(len(content)), chance.randrange(len(content))
            kind = chance.randrange(4)
            if kind == 0:
                content[position] ^= 1 << chance.randrange(8)
            elif kind == 1:
                content[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            else:
                content[position : position + 4] = content[source : source + 4]
        yield bytes(content)


def test_truncated_files_are_refused() -> None:
    content = sample()
    assert attempt(content)
    for length in range(len(content)):
        assert not attempt(content[:length]), length


def test_each_byte_changed() -> None:
    content = sample()
    for position in range(len(content)):
        for value in (0xFF, content[position] ^ 1):
            attempt(content[:position] + bytes([value]) + content[position + 1 :])


@pytest.mark.parametrize("seed", [1])
def test_mutated_files(seed: int) -> None:
    end, count, read_count = time.monotonic() + SECONDS, 0, 0
    for content in mutants(seed):
        count, read_count = count + 1, read_count + attempt(content)
        if time.monotonic() > end:
            break
    assert count > 100
    assert read_count < count
