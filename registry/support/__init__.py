"""The operating system: durable files (`disk`), threads (`parallel`), environment variables and the user's directories.

`Disk` is the only access of a store to the file system; the crash tests replace it.

Start with `disk.py`.
Must not import: any other package of `registry`.
"""

from collections.abc import Callable

tell: Callable[[str], None] = lambda message: None
"""Takes a sentence about a long wait, or about a file that is left alone. A command line may replace it."""
