"""Makes every conversion of the tests, also in worker processes, run the verifier after each pass."""

import os

os.environ.setdefault("ONNXTFL_VERIFY", "1")
os.environ.setdefault("ONNXTFL_NO_LOAD", "1")  # a process for each unchecked conversion; tests of it delete this
