"""The operating system: durable files, cancellation of threads, environment variables, the user's
directories.

`Disk` is the only access to the file system (the crash tests replace it), `disk.outfile` writes a file
that a user asked for, `environment` reads the variables of `reg`, `cancellation` stops worker threads on Ctrl-C
or on the first failure.

Start with `disk.py`.
Must not import: any other package of `registry`.
"""
