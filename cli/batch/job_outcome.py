"""The outcome of a job."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from onnxreg.cli import hints
from onnxreg.schema.core.errors import RegError

Status = Literal["published", "current", "failed", "stopped"]
BUG = RegError.family
"""The family of what no error was made for."""


@dataclass(frozen=True)
class JobOutcome:
    """`current`: what was asked for was there already; `stopped`: the run ended before the job did.

    `ref` and `digest` (of the manifest) are set if there is a version; of what failed, `family`, `message` and `hint`
    are those of the error. `pushed`: it is in the remote, too.
    """

    row: int
    called: str
    status: Status
    ref: str | None = None
    digest: str | None = None
    pushed: bool = False
    seconds: float = 0.0
    family: str | None = None
    message: str = ""
    hint: str = ""

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    def with_error(self, error: RegError) -> Self:
        return replace(
            self, status="failed", family=error.family, message=error.message, hint=hints.text(error.advice)
        )

    def to_json(self) -> dict[str, Any]:
        error = {"family": self.family, "message": self.message, "hint": self.hint} if self.failed else None
        return {
            "row": self.row,
            "job": self.called,
            "status": self.status,
            "ref": self.ref,
            "digest": self.digest,
            "pushed": self.pushed,
            "seconds": round(self.seconds, 3),
            "error": error,
        }
