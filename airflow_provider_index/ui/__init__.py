"""A page inside Airflow that shows the tables of a lake: their indexes, their log, what is at work on them.

Everything is read from the tables' own logs when a page is asked for; nothing is written, and nothing is kept but for
some seconds. Only the API server imports more of it than :mod:`airflow_provider_index.ui.plugin`.
"""
