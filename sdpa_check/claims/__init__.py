"""Claims of documents as data: TOML files, read and checked, and turned into checks."""
