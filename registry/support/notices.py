"""Notices to people while a command runs."""

from collections.abc import Callable

tell: Callable[[str], None] = lambda message: None
"""Takes a sentence about a long wait, or about a file that is left alone. A command line may replace it."""
