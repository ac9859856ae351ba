"""Many exports at once: a job file, processes or a Dask cluster, and a report of all jobs.

`jobs` reads and checks the job file, `pool` decides how many exports fit on this machine and runs
them in processes, `cluster` on Dask workers. `work` is one job wherever it runs; its result is a
`JobOutcome`.

Start with `run_batch.py`. The command in words: docs/fleets.md.
Must not import: `commands`.
"""
