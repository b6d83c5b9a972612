"""The limits of the page: how long it waits for stores, how much it reads, keeps and shows.

Each limit is stated with its unit and its reason.
"""

from __future__ import annotations

# --- Waiting ----------------------------------------------------------------------------------------------------------

PATIENCE_SECONDS = 3.0
"""Seconds that the overview waits for what it shows. What comes later is there when the page is loaded again."""

DETAIL_SECONDS = 12.0
"""Seconds that the page of a table waits for its store."""

ADVICE_SECONDS = 45.0
"""Seconds that the page of a table waits where advice is asked for."""

STUCK_SECONDS = 10.0
"""Seconds after which a running call no longer counts against the number of threads."""

# --- What is kept in memory -------------------------------------------------------------------------------------------

FRESH_SECONDS = 15.0
"""Seconds for which what was read of a table is shown again."""

LISTING_SECONDS = 30.0
"""Seconds for which the list of a connection's tables is shown again."""

MAX_KEPT = 20_000
"""Answers that are kept in memory, those asked for last."""

# --- What is read -----------------------------------------------------------------------------------------------------

MAX_TABLES_READ = 5000
"""Tables of which all are read, for totals; of a larger warehouse only those on the page are."""

MAX_FOLDERS = 3
"""Folders that the name of a table can have: catalog, database, table."""

MAX_ADDRESS_CHARACTERS = 4096
"""Characters of an address in a request that can be a table's."""

UPKEEP_COMMITS = 120
"""The newest commits, which are searched for what was written to indexes."""

MAX_SAMPLED_BYTES = 16 << 20
"""Bytes of a sample of the rows that advice reads in the web server."""

# --- What is shown ----------------------------------------------------------------------------------------------------

PAGE_SIZES = (50, 200, 1000)
"""Tables on a page of the overview, to choose from."""

COMMITS_A_PAGE = 60
"""Commits on a page of a table's history."""

PARTITIONS_A_PAGE = 24
"""Partitions on a page of a table's partitions."""

MAX_TRANSACTIONS = 50
"""Transactions in progress that are shown, the newest."""
