"""Many exports at once: a job file, processes or a Dask cluster, and what became of each job."""
