"""A cluster of this environment's Spark for clients of another one: ``python -m tests.matrix.server KIND FOLDER``.

``standalone`` is a master with a worker, ``connect`` a Spark Connect server. What a client needs to know is printed as
one line of JSON; both end when standard input does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark.clusters import connect_server, standalone_cluster


def main(kind: str, home: Path) -> None:
    if kind == "standalone":
        with standalone_cluster(home, memory="1400m") as cluster:
            _serve({"master": cluster.master, "conf": dict(cluster.conf)})
    else:
        with connect_server(home) as server:
            _serve({"master": server.address, "conf": {}})


def _serve(settings: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(settings) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
