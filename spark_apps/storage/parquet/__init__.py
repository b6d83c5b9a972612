"""Parquet files: footers that are checked before a library sees them, headers of pages, bounds of columns."""
