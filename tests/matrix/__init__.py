"""The versions of Spark, Airflow and Python that the package runs on, each tried in an environment of its own."""
