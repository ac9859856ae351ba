"""Questions over all models of a registry: listings, the catalog, tables for other engines.

`catalog` has the lines of a catalog, reads them from index files and searches them, `catalogs` keeps them here, publishes
them, and reads those of a remote, `table_export` writes Parquet and CSV.

Start with `catalog.py`.
Must not import: `transfer`, `publish`, `maintain`, `server`.
"""
