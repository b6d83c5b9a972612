"""What can be done to a table: every action is one template (validate, begin, op, commit)."""
