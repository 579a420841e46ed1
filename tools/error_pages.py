"""Write the pages of the error codes to a folder, one for each code and an index: python tools/error_pages.py FOLDER

Their only source is converter/onnxtfl/error_codes.toml; the documentation is built from what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onnxtfl.error_codes import error_codes, index, page


def main(folder: Path) -> None:
    """Write the pages to `folder`, and remove those of other codes there."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{code}.md": page(entry) for code, entry in error_codes().items()} | {"index.md": index()}
    for old in folder.glob("E-*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
