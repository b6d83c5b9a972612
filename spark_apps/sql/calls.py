"""``CALL partition_bucket_index_manager(…)``: its arguments by name or place, as the document has them.

Follows Hudi's RFC-89 (offline rescale by a call command); ``dry_run`` is true there unless told
otherwise, and so it is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lark import Token

from spark_apps.sql.places import At, Refused
from spark_apps.sql.statements import NEWEST, ManageBuckets, Value

PROCEDURE = "partition_bucket_index_manager"
PARAMETERS = (
    "table", "overwrite", "bucket_number", "add", "dry_run", "rollback", "show_config", "rule", "options",
)  # fmt: skip
OPERATIONS = ("overwrite", "add", "rollback", "show_config")
OPTIONS = ("window", "drain_seconds")

Arguments = Sequence[tuple[Token | None, At[Value]]]


def read_call(procedure: At[str], arguments: Arguments) -> ManageBuckets:
    """The statement of a call. :raises Refused: at the argument that cannot be meant."""
    if _plain(procedure.value.rpartition(".")[2]) != _plain(PROCEDURE):
        raise Refused(procedure.token, f"There is no procedure {procedure.value!r}.", f"There is {PROCEDURE}.")
    given = _by_name(arguments)
    if "table" not in given:
        raise Refused(procedure.token, "The call names no table.", "Add table => 'db.name'.")
    wanted = [name for name in OPERATIONS if name in given and given[name].value is not False]
    if len(wanted) != 1:
        token = procedure.token if not wanted else given[wanted[1]].token
        raise Refused(token, f"The call is told to do {' and '.join(wanted) or 'nothing'}.",
                      f"Give exactly one of {', '.join(OPERATIONS)}.")  # fmt: skip
    [operation] = wanted
    _check_fits(operation, given)
    return ManageBuckets(
        table=_text(given["table"], "table"),
        operation=operation,  # type: ignore[arg-type]
        argument=_argument(operation, given[operation]),
        bucket_number=_count(given["bucket_number"]) if "bucket_number" in given else None,
        dry_run=_truth(given["dry_run"], "dry_run") if "dry_run" in given else operation in ("overwrite", "add"),
        rule=_text(given["rule"], "rule") if "rule" in given else None,
        options=_options(given["options"]) if "options" in given else (),
    )


def _by_name(arguments: Arguments) -> dict[str, At[Any]]:
    """What was given, by parameter; NULL is as good as not given."""
    known = {_plain(name): name for name in PARAMETERS}
    found: dict[str, At[Any]] = {}
    named = False
    for place, (token, at) in enumerate(arguments):
        named = named or token is not None
        if token is None and named:
            raise Refused(at.token, "An argument without a name follows one with a name.", "Give its name too.")
        if token is None and place >= len(PARAMETERS):
            raise Refused(at.token, f"The call has {len(PARAMETERS)} parameters.", f"They are {', '.join(PARAMETERS)}.")
        if token is not None and _plain(token) not in known:
            raise Refused(token, f"There is no parameter {str(token)!r}.", f"There are {', '.join(PARAMETERS)}.")
        name = PARAMETERS[place] if token is None else known[_plain(token)]
        if name in found:
            raise Refused(token or at.token, f"{name} is given twice.")
        found[name] = at
    return {name: at for name, at in found.items() if at.value is not None}


def _check_fits(operation: str, given: dict[str, At[Any]]) -> None:
    takes = {
        "overwrite": {"bucket_number", "rule", "dry_run", "options"},
        "add": {"dry_run", "options"},
        "rollback": {"dry_run", "options"},
        "show_config": set(),
    }[operation]
    for name in ("bucket_number", "rule", "dry_run", "options"):
        # A call by places has to say something for those in between; what is the default says nothing.
        if name in given and name not in takes and given[name].value not in (-1, "regex", True):
            raise Refused(given[name].token, f"{operation} takes no {name}.", _why_not(operation, name))


def _why_not(operation: str, name: str) -> str:
    if operation == "add" and name in ("bucket_number", "rule"):
        return "Expressions are added under the rule and default in force; to change these, overwrite."
    return "Leave it out."


def _argument(operation: str, at: At[Any]) -> str:
    if operation == "show_config":
        _truth(at, operation)
        return ""
    if operation == "rollback" and at.value is True:
        return NEWEST
    return _text(at, operation)


def _text(at: At[Any], name: str) -> str:
    if not isinstance(at.value, str) or not at.value:
        raise Refused(at.token, f"{name} is not a text.", f"Write {name} => '…'.")
    return at.value


def _truth(at: At[Any], name: str) -> bool:
    text = str(at.value).lower()
    if text not in ("true", "false"):
        raise Refused(at.token, f"{name} is neither true nor false.", f"Write {name} => true.")
    return text == "true"


def _count(at: At[Any]) -> int | None:
    try:
        count = int(str(at.value))
    except ValueError:
        raise Refused(at.token, "bucket_number is no number.", "Write bucket_number => 8.") from None
    return None if count == -1 else count  # the document's way to say nothing


def _options(at: At[Any]) -> tuple[tuple[str, str], ...]:
    """``key=value, key=value``."""
    pairs = [part.partition("=") for part in _text(at, "options").split(",") if part.strip()]
    for key, _sign, value in pairs:
        if key.strip() not in OPTIONS or not value.strip():
            raise Refused(
                at.token, f"There is no option {key.strip()!r}.", f"There are {', '.join(OPTIONS)}, each key=value."
            )
    return tuple((key.strip(), value.strip()) for key, _sign, value in pairs)


def _plain(name: str) -> str:
    return str(name).lower().replace("_", "").replace("-", "")
