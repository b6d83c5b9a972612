"""The client of Airflow's API, asked of an API server that answers as Airflow's does when its scheduler is dead."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from airflow_provider_index.testing import AirflowClient, SchedulerDead
from airflow_provider_index.testing import client as module


@contextmanager
def api_server(beat: datetime | None) -> Iterator[str]:
    """An API server that knows one run, which never ends, and when the scheduler was last heard of."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scheduler = {"status": "healthy", "latest_scheduler_heartbeat": beat and beat.isoformat()}
            health = self.path.endswith("/monitor/health")
            body = {"scheduler": scheduler} if health else {"state": "running", "task_instances": []}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_given_a_scheduler_that_is_silent_when_a_run_is_waited_for_then_it_is_named_long_before_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    with api_server(datetime.now(UTC) - timedelta(seconds=120)) as url:
        client = AirflowClient(url, "admin", "secret", log="/home/standalone.log")
        with pytest.raises(SchedulerDead, match=r"no sign of life for 12\d s; .* See /home/standalone\.log"):
            client.wait("d", "r", timeout=60)
        with pytest.raises(SchedulerDead):
            client.wait_for_task("d", "r", "t", timeout=60)
        client.close()


@pytest.mark.parametrize("beat", [None, datetime.now(UTC) + timedelta(hours=1)])
def test_given_a_scheduler_that_lives_or_has_not_begun_then_the_run_is_waited_for(
    beat: datetime | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    with api_server(beat) as url:
        client = AirflowClient(url, "admin", "secret")
        with pytest.raises(TimeoutError, match="still running"):
            client.wait("d", "r", timeout=0.3, poll=0.05)
        client.close()
