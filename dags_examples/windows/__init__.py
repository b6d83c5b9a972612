"""What keeps stop-write windows in order."""
