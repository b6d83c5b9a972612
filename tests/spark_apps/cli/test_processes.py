"""The command line as a process: what it imports, a reader that goes away, a terminal, a shell that completes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.by_turn(8)

ROOT = Path(__file__).parents[3]


def environment(lake: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "LAKEINDEX_WAREHOUSE": str(lake), **more}


def test_given_each_command_then_neither_pyspark_nor_airflow_nor_a_jvm_comes_in(whole_lake: Path) -> None:
    code = """
import subprocess, sys
from spark_apps.__main__ import main
def started(*given): raise AssertionError(f"a process was started: {given}")
class Popen(subprocess.Popen):
    __init__ = started
subprocess.Popen = Popen
for line in sys.stdin.read().splitlines():
    assert main(line.split("|")) == 0, line
heavy = {"pyspark", "py4j", "airflow", "airflow_provider_index"}
print("FOUND", sorted({name.split(".")[0] for name in sys.modules} & heavy))
"""
    commands = """tables
show|trips
history|trips
indexes|trips|by_city
explain|trips|id = 3
lookup|trips|3
verify|trips
query|SELECT count(*) FROM trips
windows|trips
attempts|trips
plan
locate|trips|city = 'osl'
locate|trips
doctor|--read-only
export|trips|-"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=commands,
        env=environment(whole_lake, JAVA_HOME="/no/java/here"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "FOUND []"


def test_given_a_pipe_that_closes_then_the_command_ends_in_silence(whole_lake: Path) -> None:
    command = [sys.executable, "-m", "spark_apps", "query", "SELECT * FROM range(1000000)", "--json"]
    with subprocess.Popen(
        command, env=environment(whole_lake), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "[\n"
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (141, "")


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("command", ["history trips --all --json", "show trips", "export trips -", "tables --json"])
def test_given_a_pipe_that_nobody_reads_then_the_exit_code_says_so_and_nothing_else_is_said(
    whole_lake: Path, command: str
) -> None:
    end, written = os.pipe()
    os.close(end)
    line = [sys.executable, "-m", "spark_apps", *command.split()]
    with subprocess.Popen(line, env=environment(whole_lake), stdout=written, stderr=subprocess.PIPE) as process:
        os.close(written)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (141, b"")


def test_given_head_behind_it_then_the_first_line_is_given_and_no_traceback(whole_lake: Path) -> None:
    line = (
        f"set -o pipefail; {sys.executable} -m spark_apps query 'SELECT range AS n FROM range(200000)' --json | head -1"
    )
    done = subprocess.run(["bash", "-c", line], env=environment(whole_lake), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, "[\n", "")


def test_given_a_terminal_then_there_are_colours_and_lines_that_fit(whole_lake: Path) -> None:
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    command = [sys.executable, "-m", "spark_apps", "indexes", "trips"]
    with subprocess.Popen(command, env=environment(whole_lake), stdout=theirs, stderr=theirs, stdin=theirs):
        os.close(theirs)
        data = b""
        try:
            while part := os.read(ours, 65536):
                data += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    text = data.decode()
    assert "\x1b[1m5 indexes\x1b[0m" in text and "\x1b[31m6 file groups behind\x1b[0m" in text
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", text)
    assert max(map(len, plain.splitlines())) <= 40


def test_given_a_shell_then_commands_and_tables_are_completed(whole_lake: Path) -> None:
    def complete(line: str) -> str:
        words = line.split(" ")
        asked = {"_LAKEINDEX_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        command = [sys.executable, "-m", "spark_apps"]
        done = subprocess.run(command, env=environment(whole_lake, **asked), capture_output=True, text=True)
        return done.stdout

    assert "plain,history" in complete("lakeindex hist")
    assert "plain,raw.rides" in complete("lakeindex show raw.ri")
