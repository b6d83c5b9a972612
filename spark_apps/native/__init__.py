"""Other formats' own maintenance, made by their own connectors: one module a format."""
