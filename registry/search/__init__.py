"""Queries over all models: listings, the SQLite search index, tables for other engines.

`SearchIndex` answers from a SQLite file that may be deleted at any time, `candidates` reads artifacts from
logs, `candidate_table` answers expressions about them, `table_export` writes Parquet and CSV.

Start with `search_index.py`.
Must not import: `transfer`, `publish`, `maintain`, `server`.
"""
