"""The table as a Delta table: its log, checkpoints of that, and how commits are published in it."""
