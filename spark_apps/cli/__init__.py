"""The command line ``lakeindex``: what a person or a program asks tables from a shell.

It reads: no command commits to a table. None starts a JVM or imports pyspark.
"""
