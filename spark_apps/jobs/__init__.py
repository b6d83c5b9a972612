"""Jobs: what a Spark app is given to do, how it runs, and how it answers. No knowledge of Airflow in it."""
