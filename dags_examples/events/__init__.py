"""DAGs that begin when something has happened to a table."""
