"""Takes a person's rows out of a table, and out of every file."""
