"""transformers without its reports and progress bars."""

import contextlib
from collections.abc import Iterator

from onnxreg.converters.onnx.quiet import quiet


@contextlib.contextmanager
def silent_transformers() -> Iterator[None]:
    """Silence transformers while it loads and saves; failures are still raised as errors."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
