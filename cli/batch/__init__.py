"""Many exports at once. A job is a command line of `reg export`, run in a worker process or on a Dask cluster.

`jobs` reads the job file, `worker` runs one command line after the other, `run_batch` shares them out and reports.

Start with `run_batch.py`. The command in words: docs/fleets.md.
Must not import: `commands`.
"""
