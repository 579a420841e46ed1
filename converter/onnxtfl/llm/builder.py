"""The package litert-lm-builder (``onnxtfl[llm]``), which is imported here only."""

from __future__ import annotations

from typing import Any

from onnxtfl.errors import RuntimeUnavailableError


def builder_package() -> Any:
    """The package. Raises RuntimeUnavailableError if it is not installed."""
    try:
        import litert_lm_builder
    except ImportError as error:
        message = f"litert-lm-builder, which writes .litertlm files, cannot be imported: {error}"
        raise RuntimeUnavailableError(
            message, hint="pip install 'onnxtfl[llm]', or write a .tflite", code="E-RUN-001"
        ) from error
    return litert_lm_builder


def llm_metadata() -> Any:
    """An empty message LlmMetadata. Raises RuntimeUnavailableError as `builder_package`."""
    builder_package()
    from litert_lm_builder.runtime.proto import llm_metadata_pb2

    return llm_metadata_pb2.LlmMetadata()
