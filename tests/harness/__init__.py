"""What several test suites share: crash-proof workers, running TFLite and ONNX models, comparing their outputs."""
