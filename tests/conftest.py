"""Every conversion that a test makes, in its own process or in a worker, is verified after each pass."""

import os

os.environ.setdefault("ONNXTFL_VERIFY", "1")
