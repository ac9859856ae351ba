"""Figures as people read them."""


def size(count: int) -> str:
    """Bytes; kB, MB and GB are powers of ten."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def counted(count: int, noun: str) -> str:
    """`1 blob`, `2 blobs`"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def measure(value: float | None) -> str:
    """Three significant digits; nothing if there is no value."""
    return "" if value is None else f"{value:.3g}"
