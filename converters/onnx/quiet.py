"""Silences libraries that warn or log to the root logger, and restores the settings afterwards."""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

LEVELS = {"torch": logging.CRITICAL, "torch.onnx": logging.ERROR, "onnxscript": logging.ERROR}
"""Log levels, inside the block, of loggers that have handlers of their own."""
_lock = threading.Lock()
_entered = 0
_undo = ExitStack()


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block, ignore warnings, log only exporters' errors, and make `logging.basicConfig` change nothing.

    Filters belong to the whole process: the first thread to enter sets them, the last thread to leave restores them.
    """
    global _entered
    with _lock:
        if _entered == 0:
            _undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            handler = logging.NullHandler()
            logging.root.addHandler(handler)
            _undo.callback(logging.root.removeHandler, handler)
            for name, level in LEVELS.items():
                logger = logging.getLogger(name)
                _undo.callback(logger.setLevel, logger.level)
                logger.setLevel(level)
        _entered += 1
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0:
                _undo.close()


@contextmanager
def silent_transformers() -> Iterator[None]:
    """Silence transformers while it loads and saves; failures are still raised as exceptions."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(reports.CRITICAL)
    reports.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()
