"""Indexes as if they were there: what queries would read with them, and which of them pay for themselves."""
