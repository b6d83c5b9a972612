"""What a registered table's rows are read from: plain files, Delta and Iceberg tables. Listed here, never written."""
