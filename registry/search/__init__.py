"""Questions over all models: listings, the SQLite index and tables for other engines."""
