"""Memory: what is free on this machine, and whether a decoder can be built in it."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.schema.core.errors import HostError

if TYPE_CHECKING:
    from onnxreg.converters.engine.plan import ExportPlan


def check_memory(plan: "ExportPlan") -> None:
    """Raise HostError if a plan builds a decoder that takes more memory than is free; unknown sizes pass."""
    from onnxreg.converters.passes.model_builder import ModelBuilder, peak_memory

    source = plan.source.location
    if not isinstance(source, Path) or all(node.kind is not ModelBuilder for node in plan.nodes.values()):
        return
    peak, free = peak_memory(source), free_memory()
    if peak is not None and free is not None and peak > free:
        raise HostError(
            f"building the decoder takes about {peak / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free",
            "close other programs, or export it on a machine with more memory",
        )


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes available without swapping, no more than the control group allows; None if that is unknown."""
    limits = [_available(root), _left_in_group(root / "sys/fs/cgroup")]
    return min((size for size in limits if size is not None), default=None)


def _available(root: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _left_in_group(group: Path) -> int | None:
    with suppress(OSError, ValueError):
        limit, used = ((group / f"memory.{name}").read_text("ascii") for name in ("max", "current"))
        return max(0, int(limit) - int(used))
    return None
