"""The public face of a table, part by part; :class:`~spark_apps.table.IndexedTable` puts the parts together."""
