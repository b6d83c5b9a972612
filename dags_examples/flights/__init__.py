"""The life of one table: first load and indexes, daily deliveries, nightly upkeep, a rescale by hand, late
corrections."""
