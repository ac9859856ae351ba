"""The server's log: lines of JSON on stderr."""

import json
import logging
import sys
from contextlib import suppress


def to_stderr(line: str) -> None:
    """One line. A log that nobody takes stops no answer."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class JsonLines(logging.Handler):
    """What libraries log, as `{"level", "message", "trace"?}` among the other lines."""

    def emit(self, record: logging.LogRecord) -> None:
        value = {"level": record.levelname.lower(), "message": record.getMessage().strip()}
        if record.exc_info:
            value["trace"] = logging.Formatter().formatException(record.exc_info)
        to_stderr(json.dumps(value))
