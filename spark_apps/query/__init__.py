"""From a SQL predicate to what must be read: parsing, what a predicate says about keys, planning, explain."""
