"""DAGs that wait for what others do to a table."""
