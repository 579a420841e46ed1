"""The sources of converted language models, which decode in ONNX Runtime: with growing caches (also in float32 and with
rounded activations), with caches of a fixed length, and after an encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.models.widened import HALVES, may_round_operands, write_widened
from onnxtfl.checking.settings import Settings
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats import files
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import SymDim
from onnxtfl.ir.graph import Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import TensorType
from onnxtfl.llm.decoders import Decoder, cross_name, decoder_of
from onnxtfl.llm.encoder_decoders import EncoderDecoder
from onnxtfl.llm.entries import Entries, Piece
from onnxtfl.llm.fixed_decoders import FixedDecoder, cache_names
from onnxtfl.llm.real_products import RealProducts
from onnxtfl.runtimes import RunOptions, Worker
from onnxtfl.tracing.parts import temporary_directory

WIDE, ROUNDED = "wide", "rounded"
"""Copies of the source: in float32, and with activations rounded to int8."""
WINDOW, WINDOWED = "local_window_size", "sliding_window_cache"
"""Attributes of attention: places that a token attends to, and whether the cache has these only."""
Plan = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """What a converted language model is compared with: it decodes freely, or the tokens that it is given."""

    file: Path
    entries: Entries
    worker: Worker
    settings: Settings
    stack: ExitStack

    @property
    def logits(self) -> str:
        """The name of the output."""
        return "logits"

    @property
    def subject(self) -> str:
        """What the lengths count."""
        return "token"

    @property
    def lengths(self) -> list[int]:
        """The lengths of prompts to compare."""
        return self.entries.lengths(self.windows)

    @cached_property
    def windows(self) -> list[int]:
        """The windows of attention that the model's ops have as an attribute."""
        return []

    @cached_property
    def is_rough(self) -> bool:
        """Whether it computes in float16, or rounds operands of products."""
        types = [v.type for node in files.read(self.file).main.walk() for v in node.present_operands]
        halves = any(isinstance(t, TensorType) and t.dtype in HALVES for t in types)
        return halves or may_round_operands(self.file)

    def plans(self, length: int) -> list[tuple[str, Plan]]:
        """The plans to decode after a prompt of a length, each with its description: the usual one first."""
        rng = np.random.default_rng((self.settings.seed, length))
        prompt = rng.integers(0, self.entries.vocabulary, length).tolist()
        usual, small = self.entries.pieces(length - 1), self.entries.small_pieces(length - 1)
        ways = [("", usual)] + ([(_way(small), small)] if small != usual else [])
        return [(words, {"prompt": prompt, "steps": self.entries.steps, "pieces": pieces}) for words, pieces in ways]

    def padded(self, plan: Plan) -> Plan | None:
        """A plan in which the source reads as many places as the result; None where it does so anyway."""
        return None

    def decode(
        self, plan: Plan, forced: Sequence[int] | None = None, kernels: str = "default", copy: str = ""
    ) -> tuple[list[int], Array]:
        """The tokens and logits after the prompt of a plan; `copy`: of the source in float32 (`WIDE`), or with
        activations rounded to int8 (`ROUNDED`). Raises RunError, and UnsupportedError for a copy that there is not.
        """
        if copy and not self._copies:
            raise UnsupportedError("a model of several files has no copy that computes in another way")
        model = self._copies[copy] if copy else self.file
        self.worker.is_source = copy != ROUNDED
        given = plan | {"forced": forced} | self._how(copy)
        return self.worker.generate(model, given, RunOptions(kernels, self.settings.time_limit))

    @property
    def with_real_products(self) -> RealProducts | None:
        """A copy of the result in which no kernel rounds; None if there is none."""
        return None

    def _how(self, copy: str) -> Plan:
        """What the plan of the source, or of a copy of it, has besides."""
        raise NotImplementedError

    @cached_property
    def _copies(self) -> Mapping[str, Path]:
        """The paths of copies of the source."""
        return {}


@dataclass(frozen=True)
class Growing(Source):
    """A decoder whose caches grow."""

    decoder: Decoder

    @property
    def logits(self) -> str:
        return self.decoder.logits

    def _how(self, copy: str) -> Plan:
        return {"names": _names(self.decoder), "caches": self._caches}

    @cached_property
    def with_real_products(self) -> RealProducts | None:
        return RealProducts(self.file, self.decoder, self.entries, self.stack)

    @cached_property
    def _model(self) -> Model:
        return files.read(self.file)

    @cached_property
    def windows(self) -> list[int]:
        """The windows of attention that the model's ops have as an attribute."""
        found = {node.attributes.get(WINDOW, 0) for node in self._model.main.walk()}
        return sorted(int(n) for n in found if n > 0)

    @cached_property
    def _copies(self) -> Mapping[str, Path]:
        """The paths of copies of the source."""
        folder = temporary_directory(self.stack)
        found = {name: folder / f"{name}.onnx" for name in (WIDE, ROUNDED)}
        for name, path in found.items():
            write_widened(self.file, path, rounding=name == ROUNDED)
        return found

    @cached_property
    def _caches(self) -> list[tuple[str, str, list[int], int]]:
        """The names, the empty shape and the axis of each cache; one that has the places of a window only has that many
        from the start.
        """
        nodes = [node for node in self._model.main.walk() if node.attributes.get(WINDOWED)]
        windowed = {v.name: n.attributes[WINDOW] for n in nodes for v in n.present_operands}
        found = []
        for cache in self.decoder.caches:
            shape = list(self.entries.shapes[cache.name])
            window = windowed.get(cache.past, 0)
            shape[cache.axis] = max(window, self.entries.context) if window else 0
            found.append((cache.past, cache.present, shape, cache.axis))
        return found


@dataclass(frozen=True)
class Fixed(Source):
    """A decoder with caches of a fixed length, a file for each signature."""

    decoder: FixedDecoder

    def _how(self, copy: str) -> Plan:
        paths = {key: str(path) for key, path in self.decoder.files.items()}
        outputs = {key: dict(cache_names(files.read(path).main)) for key, path in self.decoder.files.items()}
        return {"files": paths, "outputs": outputs}


@dataclass(frozen=True)
class Encoded(Source):
    """An encoder-decoder; a length is that of what its encoder reads, where it has a mask.

    ``new``: the number of the first tokens. ``sizes``: those of the inputs of the result's encoder.
    """

    parts: EncoderDecoder
    new: int
    sizes: Mapping[str, tuple[int, ...]]

    @property
    def subject(self) -> str:
        return "encoded token" if self._has_mask else "first token"

    @property
    def lengths(self) -> list[int]:
        whole = self._places
        return sorted({1, max(1, whole // 2), whole}) if self._has_mask else [self.new]

    def plans(self, length: int) -> list[tuple[str, Plan]]:
        rng = np.random.default_rng((self.settings.seed, length))
        prompt = rng.integers(0, self.entries.vocabulary, self.new).tolist()
        count = length if self._has_mask else self._places
        read = {"seed": [self.settings.seed, length], "count": count, "inputs": self._inputs}
        steps = max(1, min(self.entries.steps, self.entries.context - self.new))
        return [("", {"prompt": prompt, "steps": steps, "encoder": read})]

    def padded(self, plan: Plan) -> Plan | None:
        read, places = plan["encoder"], self._places
        return None if read["count"] == places else plan | {"encoder": read | {"places": places}}

    def _how(self, copy: str) -> Plan:
        later = files.read(self.parts.later).main
        decoder = decoder_of(later, has_encoder=True)
        maker = self.parts.encoder if self.parts.has_crosses else self.parts.first
        presents = {cross_name(name): name for name in files.read(maker).main.output_names}
        crossed = [[name, presents[cross]] for v in later.inputs if (cross := cross_name(name := str(v.name)))]
        caches: list[Any] = [(cache.past, cache.present, [], cache.axis) for cache in decoder.caches]
        paths = self._copied[copy] if copy else self._parts
        named = {"names": _names(decoder), "caches": caches, "crossed": crossed}
        return named | {"files": {role: str(path) for role, path in paths.items()}}

    @property
    def _has_mask(self) -> bool:
        """Whether the encoder may read less than it has place for."""
        return self._mask is not None and isinstance(self._mask.shape[-1], SymDim)

    @property
    def _parts(self) -> Mapping[str, Path]:
        """The files by role."""
        return {"encoder": self.parts.encoder, "first": self.parts.first, "later": self.parts.later}

    @cached_property
    def _copied(self) -> Mapping[str, Mapping[str, Path]]:
        """The files of the copies of the source, by role."""
        folder, found = temporary_directory(self.stack), dict[str, Mapping[str, Path]]()
        for name in (WIDE, ROUNDED):
            paths = {path: folder / f"{name}_{path.name}" for path in self._parts.values()}
            for path, target in paths.items():
                write_widened(path, target, rounding=name == ROUNDED)
            found[name] = {role: paths[path] for role, path in self._parts.items()}
        return found

    @cached_property
    def _copies(self) -> Mapping[str, Path]:
        return {name: files_["first"] for name, files_ in self._copied.items()}

    @cached_property
    def _mask(self) -> Value | None:
        """The input of the encoder that says what it reads."""
        return next((v for v in files.read(self.parts.encoder).main.inputs if "mask" in str(v.name)), None)

    @property
    def _places(self) -> int:
        """What the result's encoder reads at most."""
        return self.entries.context if self._mask is None else self.sizes[str(self._mask.name)][-1]

    @cached_property
    def _inputs(self) -> list[tuple[str, list[int | None], str, int]]:
        """Name, sizes (None: that of the mask), dtype and limit of the encoder's inputs: 1 for masks, 0 for others of
        real values.
        """
        return list(self._read())

    def _read(self) -> Iterator[tuple[str, list[int | None], str, int]]:
        mask, open_ = ("", "") if self._mask is None else (str(self._mask.name), str(self._mask.shape[-1]))
        for value in files.read(self.parts.encoder).main.inputs:
            name = str(value.name)
            pairs = zip(value.shape, self.sizes.get(name, value.shape), strict=True)
            sizes = [None if isinstance(dim, SymDim) and str(dim) == open_ else int(size) for dim, size in pairs]
            limit = 1 if name == mask else self.entries.vocabulary if value.dtype.is_integer else 0
            yield name, sizes, value.dtype.numpy.name, limit


def _names(decoder: Decoder) -> dict[str, str]:
    d = decoder
    return {"tokens": d.tokens, "attention": d.attention, "positions": d.positions, "logits": d.logits}


def _way(pieces: Sequence[Piece]) -> str:
    return f"in pieces of {pieces[0][1]}" if pieces else "decoded one by one"
