"""The example DAGs on real flights, run by a real Airflow, checked against the raw data."""
