"""Questions over all models of a registry: listings, the catalog, tables for other engines.

`catalog` has the lines, `catalogs` keeps and publishes them, `table_export` writes Parquet and CSV. Start with `catalog.py`.
Must not import: `transfer`, `publish`, `maintain`, `server`.
"""
