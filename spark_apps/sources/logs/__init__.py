"""The logs of tables of other formats: the commits since a version, in order, and what each added and removed."""
