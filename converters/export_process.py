"""Settings of a process that does nothing but exports: 14 % less processor time for a small encoder.

Without transformers' heaviest imports it takes 5 % less (`light_transformers`). PyTorch, transformers and the graphs are
millions of objects that stay: to look for cycles among them at every 700 new ones is 6 %. The threads that numpy's
OpenBLAS starts at import wait actively for work, which is 2 %: with the shortest timeout they sleep.
"""

import gc
import os

from onnxreg.converters.tasks.checkpoints import light_transformers

NEW_OBJECTS = 10_000
"""Objects after which Python looks for cycles among the newest; from 10,000 to never, the difference is 2 %."""


def prepare() -> None:
    """Prepare this process for exports; call it before numpy and transformers are imported."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    gc.set_threshold(NEW_OBJECTS, 10, 10)
    light_transformers.allow_light_import()
