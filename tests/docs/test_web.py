"""The page about browsers in a real one: its code runs a result in Chromium (WebAssembly) and agrees with ONNX Runtime.

Needs Chromium and the npm package @litertjs/core below build/web, where .ci/run installs it; skipped without them.
"""

from __future__ import annotations

import json
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.samples import image_model
from tests.harness.browser import BROWSERS

PACKAGES = ROOT / "build" / "web" / "node_modules"
SECONDS = 60
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
REPORT = """
<script type="module">
  const send = (told) => fetch("/told", { method: "POST", body: JSON.stringify(told) });
  try {
    const { classify } = await import("./model.js");
    const pixels = await (await fetch("pixels.json")).json();
    await send({ scores: [...(await classify(pixels))], isolated: self.crossOriginIsolated });
  } catch (error) {
    await send({ error: `${error}` });
  }
</script>
"""


class Handler(SimpleHTTPRequestHandler):
    """The files of a folder, and what the page sends back."""

    def __init__(self, *request: Any, told: queue.Queue[Any], headers: dict[str, str], **options: Any) -> None:
        self.told, self.added = told, headers
        super().__init__(*request, **options)

    def end_headers(self) -> None:
        for name, value in self.added.items():
            self.send_header(name, value)
        super().end_headers()

    def do_POST(self) -> None:
        self.told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@contextmanager
def served(folder: Path, headers: dict[str, str]) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """The address of a server of the folder on this machine, and what its pages send back."""
    told: queue.Queue[Any] = queue.Queue()
    handler = partial(Handler, told=told, headers=headers, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", told
        server.shutdown()
        thread.join()


@contextmanager
def opened(browser: str, address: str, profile: Path) -> Iterator[None]:
    """A page in a browser without a window; the browser and its processes end with it."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command = [browser, *options, f"--user-data-dir={profile}", address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.parametrize("headers", [{}, ISOLATED], ids=["one thread", "threads"])
def test_a_result_runs_in_a_browser_as_in_onnx_runtime(headers: dict[str, str], tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or not (PACKAGES / "@litertjs" / "core").is_dir():
        pytest.skip("needs Chromium, and `npm install --prefix build/web @litertjs/core`")
    pixels, expected = _page(tmp_path / "site")
    (tmp_path / "site" / "pixels.json").write_text(json.dumps(pixels.ravel().tolist()))
    with (
        served(tmp_path / "site", headers) as (address, told),
        opened(browser, f"{address}/index.html", tmp_path / "profile"),
    ):
        found = told.get(timeout=SECONDS)
    assert found.get("error") is None and found["isolated"] == bool(headers)
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def _page(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write what the page tells its reader to write, with a script that reports. Returns an image and its scores."""
    import onnxtfl

    folder.mkdir()
    code = {block.language: block.text for block in blocks("docs/run-web.md")}
    (folder / "model.js").write_text(code["javascript"])
    (folder / "index.html").write_text(code["html"].replace("</body>", f"{REPORT}</body>"))
    (folder / "node_modules").symlink_to(PACKAGES)
    onnxtfl.onnx_to_tflite(image_model(), folder / "model.tflite", check=False)
    pixels = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    session = onnxruntime.InferenceSession(image_model(), providers=["CPUExecutionProvider"])
    return pixels, np.ravel(session.run(None, {"image": pixels})[0])
