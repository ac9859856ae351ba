"""`python -m onnxreg.cli` works as `reg` does."""

import sys

from onnxreg.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
