"""The server's log: lines of JSON on stderr."""

import json
import logging
import sys
from contextlib import suppress


def to_stderr(line: str) -> None:
    """Write one line. A closed log does not stop answers."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class JsonLines(logging.Handler):
    """Log records of libraries, as `{"level", "message", "trace"?}` among the other lines."""

    def emit(self, record: logging.LogRecord) -> None:
        value = {"level": record.levelname.lower(), "message": record.getMessage().strip()}
        if record.exc_info:
            value["trace"] = logging.Formatter().formatException(record.exc_info)
        to_stderr(json.dumps(value))
