"""Calling libraries that warn, or log to the root logger, without letting that reach a user or stay in force."""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

EXPORTERS = ("torch.onnx", "onnxscript")
"""Loggers with handlers of their own."""
_lock = threading.Lock()
_entered = 0
_undo = ExitStack()


@contextmanager
def quiet() -> Iterator[None]:
    """While any thread is inside, warnings are ignored, exporters log errors only, and `logging.basicConfig` changes nothing.

    Filters belong to the whole process: the first to enter sets them, the last to leave restores them.
    """
    global _entered
    with _lock:
        if _entered == 0:
            _undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            handler = logging.NullHandler()
            logging.root.addHandler(handler)
            _undo.callback(logging.root.removeHandler, handler)
            for logger in map(logging.getLogger, EXPORTERS):
                _undo.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.ERROR)
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
    """Silence transformers while it loads and saves; failures are still raised as errors."""
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
