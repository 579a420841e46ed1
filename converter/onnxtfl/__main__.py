"""``python -m onnxtfl``: the command `onnxtfl`."""

from onnxtfl.cli import main

if __name__ == "__main__":
    main()
