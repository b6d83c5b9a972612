"""One of several processes that commit to one log on a file system of Hadoop, with a Java of its own.

``python -m tests.hadoop.racing <folder of the session> <uri> <name> <commits>``, as :mod:`tests.simulation.racing`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark_apps.engine.hadoop_store import reach
from tests.hadoop.session import session
from tests.simulation import racing

if __name__ == "__main__":
    reach(session(Path(sys.argv[1])), sys.argv[2])
    racing.main(sys.argv[2], "{}", sys.argv[3], int(sys.argv[4]))
