"""Makes every conversion of the tests, also in worker processes, run the verifier after each pass."""

import os

os.environ.setdefault("ONNXTFL_VERIFY", "1")
