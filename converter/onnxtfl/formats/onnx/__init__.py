"""ONNX files: :func:`reader.read` and :func:`writer.write`; a conversion imports one of the two."""
