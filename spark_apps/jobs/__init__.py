"""Jobs: what a Spark app is given to do, how it runs, and how it answers. No knowledge of Airflow in it."""

from spark_apps.jobs.environment import check_libraries as _check_libraries

# First of all: the modules of every program import some of them.
_check_libraries()
