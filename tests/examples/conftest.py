"""The examples are scripts with modules beside them, as `python examples/train_pii.py` sees them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
