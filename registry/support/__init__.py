"""The operating system: durable files, threads, environment variables, the user's
directories.

`Disk` is the only access to the file system (the crash tests replace it), `disk.outfile` writes a file
that a user asked for, `environment` reads the variables of `reg`, `parallel` runs threads and stops them on Ctrl-C
or on the first failure.

Start with `disk.py`.
Must not import: any other package of `registry`.
"""

from collections.abc import Callable

tell: Callable[[str], None] = lambda message: None
"""Takes a sentence about a long wait, or about a file that is left alone. A command line may replace it."""
