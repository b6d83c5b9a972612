"""The commit log of one table: commits, transactions, stop-write windows, snapshots. No Spark in it."""
