"""Maintenance by policy: which tables are due for what, by their logs alone, and what a run does within a budget.

Neither Spark nor Airflow is needed to plan. What a plan chooses is done by the program
:mod:`spark_apps.programs.maintain_table`, and Airflow's tasks around it are in ``airflow_provider_index.maintenance``.
"""
