"""The times and counts that hold unless the caller gives others.

They stand apart from their users, so that an operator can show them as its defaults where a DAG is parsed and imports
nothing else for it.
"""

WINDOW_SECONDS = 3600.0
"""A stop-write window's deadline, from its opening or renewal on."""
SILENT_WRITER_SECONDS = 600.0
"""Seconds without a sign of life after which a drain of a window ends a writer."""
SILENT_JOB_SECONDS = 60.0
"""After how long a silence a job that is watched on storage is taken for dead."""
RETAIN_VERSIONS = 10
"""How many of the newest versions a cleaning leaves in any case."""
RETAIN_SECONDS = 7 * 86400.0
"""How young a version has to be to stay."""
SMALL_BYTES = 32 * 1024 * 1024
"""Files below this size are small: better folded together."""
TOMBSTONE_DAYS = 30
"""For how many days the ordering of a delete is kept once its tombstone was folded away."""
