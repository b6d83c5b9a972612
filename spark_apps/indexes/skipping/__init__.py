"""The ``skipping`` index: one small record a data file, by which files without a match are not read."""
