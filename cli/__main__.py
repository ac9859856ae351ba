"""`python -m onnxreg.cli`: the same program as `reg`."""

import sys

from onnxreg.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
