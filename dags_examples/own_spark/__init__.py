"""Tasks of Airflow's own Spark provider that work on tables with indexes."""
