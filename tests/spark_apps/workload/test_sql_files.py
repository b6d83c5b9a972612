"""SQL files: which queries of which tables are in them, and what cannot be understood is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spark_apps.storage.errors import InvalidInput
from spark_apps.workload import sql_files
from spark_apps.workload.sql_files import read_sql_files

KNOWN = {"trips": ["id", "day", "rider", "city", "fare", "dt"], "riders": ["rider", "name"]}
SQL = {
    "SELECT * FROM lake.trips WHERE id = 7 LIMIT 3": [("lake.trips", None, "id = 7", (), (), ())],
    "INSERT OVERWRITE TABLE out SELECT t.city, sum(t.fare) FROM lake.trips t JOIN riders r ON t.rider = r.rider AND "
    "r.name = 'n' WHERE t.dt = '{{ ds }}' AND (fare > 3 OR city = 'x') AND t.rider IN (SELECT rider FROM bad) "
    "GROUP BY t.city ORDER BY t.city": [
        ("bad", ("rider",), None, (), (), ()),
        ("lake.trips", ("city", "dt", "fare", "rider"), "dt = '{{ ds }}' AND (fare > 3 OR city = 'x')",
         ("rider",), ("city",), ("city",)),
        ("riders", ("name", "rider"), "name = 'n'", ("rider",), (), ()),
    ],
    "WITH x AS (SELECT id, rider FROM trips WHERE lower(city) LIKE '%a%') "
    "SELECT count(*) FROM x JOIN riders USING (rider) WHERE x.id > 3": [
        ("riders", ("rider",), None, ("rider",), (), ()),
        ("trips", ("city", "id", "rider"), "LOWER(city) LIKE '%a%'", (), (), ()),
    ],
    "CREATE TABLE foo AS SELECT id FROM `lake`.`trips` WHERE day BETWEEN 1 AND 2 UNION ALL SELECT rider FROM trips": [
        ("lake.trips", ("day", "id"), "day BETWEEN 1 AND 2", (), (), ()), ("trips", ("rider",), None, (), (), ()),
    ],
    "SELECT a FROM trips t LEFT JOIN riders r ON t.id = r.rider AND t.day = 1 WHERE t.fare = 1": [
        ("riders", ("rider",), None, ("rider",), (), ()), ("trips", ("day", "fare", "id"), "fare = 1", ("id",), (), ()),
    ],
    "SELECT 1": [], "SET x = 3": [], "": [],
}  # fmt: skip


@pytest.mark.parametrize("sql", SQL)
def test_given_a_file_when_read_then_each_select_is_a_query_of_each_of_its_tables(sql: str, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "one.sql").write_text(f"-- a comment; with 'a quote\n{sql};\n")
    asked = read_sql_files(tmp_path, KNOWN)
    found = sorted(
        (q.table, q.columns and tuple(sorted(q.columns)), q.predicate, q.join_keys, q.group_keys, q.order)
        for q in asked.queries()
    )  # fmt: skip
    assert found == sorted(SQL[sql], key=str) and asked.refused == {}


def test_given_hundreds_of_joins_when_read_then_each_condition_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, count = sql_files._Reading._owner, Counter[str]()
    monkeypatch.setattr(sql_files._Reading, "_owner", lambda *given: count.update(["looks"]) or looked(*given))
    joins = " ".join(f"JOIN t{number} ON t{number}.a = t{number - 1}.a" for number in range(1, 200))
    (tmp_path / "joins.sql").write_text(f"SELECT 1 FROM t0 {joins}")
    asked = read_sql_files(tmp_path)
    assert asked.weight == 200 and {group.shape.join_keys for group in asked} == {("a",)}
    conditions = 2 * 199
    # Also for the join keys of both tables.
    assert count["looks"] <= conditions + 200 * conditions + 2 * conditions


def test_given_files_that_cannot_be_used_when_read_then_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="no SQL file"):
        read_sql_files(tmp_path)
    monkeypatch.setattr(sql_files, "MAX_SQL_FILE_BYTES", 10_000)
    monkeypatch.setattr(sql_files, "MAX_SQL_FILES", 5)
    (tmp_path / "a.sql").write_text("SELECT {{ x }} FROM ((")
    (tmp_path / "b.sql").write_text("SELECT * FROM t WHERE a = 1 -- " + "x" * 20_000)
    (tmp_path / "c.sql").write_text("SELECT " + "(" * 4_000 + "1" + ")" * 4_000)
    (tmp_path / "d.sql").write_bytes(b"SELECT * FROM t WHERE a = '\xff\xfe'")
    for name in ("e", "f", "g"):
        (tmp_path / f"{name}.sql").write_text("SELECT * FROM t")
    asked = read_sql_files(tmp_path)
    assert asked.weight == 2.0
    assert asked.refused["a SQL file that is too long"] == 1 and asked.refused["SQL files beyond what is read"] == 2
    assert asked.refused["a SQL file that cannot be parsed"] == 2
