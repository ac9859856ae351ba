"""The operating system: durable files (`disk`), threads (`parallel`), environment variables and the user's directories.

A store reaches the file system only through `Disk`, which the crash tests replace.

Start with `disk.py`.
Must not import: any other package of `registry`.
"""

from collections.abc import Callable

tell: Callable[[str], None] = lambda message: None
"""A function that gets messages for the user, about a long wait or a skipped file. The command line replaces it."""
