"""Actions on a table, each by one template: validate, begin, work, commit."""
