"""Sources of registered tables: plain files, Delta and Iceberg tables. They are listed, never written."""
