"""Answers about all models of a registry: lists of models, results of queries, and tables for other query engines.

`catalog` has the data, `catalogs` stores and publishes it, `table_export` writes Parquet and CSV.
Must not import: `transfer`, `publish`, `maintain`, `server`.
"""
