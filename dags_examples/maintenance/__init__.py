"""DAGs that look after tables: by policy every night, and a rescale by hand with an approval."""
