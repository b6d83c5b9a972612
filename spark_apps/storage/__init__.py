"""Object store access and the error tree; the lowest room, which knows nothing of tables."""
