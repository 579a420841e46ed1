"""The arithmetic of runtime kernels that the other runtime has to reproduce, one module for each kernel.

Each module names the kernel, its source, and the test that compares it with that kernel. What kernels accept, and how
they read quantized operands, is data: ``schemas/tflite_ops.toml``.
"""
