"""The syntax of statements: places in a script, quotes and literals, and the grammar in the words of ``lark``.

A word is a keyword only where the grammar expects it, so that columns may be called ``comment`` or ``date``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lark import Token

from spark_apps.sql.statements import Value
from spark_apps.storage.errors import InvalidStatement
from spark_apps.storage.parameters import text_of_bytes
from spark_apps.storage.secrets import hide, hide_in_statement, secrets_in_statement

T = TypeVar("T")

_WIDEST = 160
"""A longer line is cut to about so many characters around the position."""


@dataclass(frozen=True)
class Positioned(Generic[T]):
    """A value and the token that it stands at."""

    value: T
    token: Token


class Refused(Exception):
    """A statement that can be read but not be meant; becomes an :class:`InvalidStatement` where the script is known."""

    def __init__(self, token: Token, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.token = token
        self.message = message
        self.hint = hint


def refusal(script: str, start: int, length: int, message: str, hint: str = "") -> InvalidStatement:
    """Return the error for a position in a script.

    :param start: offset of the position.
    :param length: how many characters it has.
    """
    start = min(start, len(script))
    line = script.count("\n", 0, start) + 1
    begins = script.rfind("\n", 0, start) + 1
    ends = script.find("\n", start)
    # Of the whole script: a value may stand on another line than its name, or far from it on the same.
    text = hide_in_statement(script)[begins : len(script) if ends < 0 else ends]
    column = start - begins + 1
    excerpt = f"\n{_excerpt(text, column, length)}\n"
    secrets = secrets_in_statement(script)
    text_of_error = f"Line {line}, column {column}: {hide(message, secrets)}{excerpt}"
    return InvalidStatement(text_of_error, hint=hide(hint, secrets), line=line, column=column)


def _excerpt(text: str, column: int, length: int) -> str:
    first = max(0, column - 1 - _WIDEST // 2) if len(text) > _WIDEST else 0
    cut = text[first : first + _WIDEST].replace("\t", " ")
    before = min(column - 1 - first, len(cut))
    width = max(1, min(length, len(cut) - before))
    return f"  {cut}\n  {' ' * before}{'^' * width}"


# --- What is written in a script -> what it means -------------------------------------------------------------------


_LONGEST_NUMBER = 400

_DOUBLED_OR_ESCAPED = {
    "'": re.compile(r"''|\\(['\"`\\])"),
    '"': re.compile(r"\"\"|\\(['\"`\\])"),
}
_COMMENT_OR_QUOTED = re.compile(
    r"('(?:[^'\\]|''|\\[\s\S])*'|\"(?:[^\"\\]|\"\"|\\[\s\S])*\"|`(?:[^`]|``)+`)|--[^\n]*|/\*[\s\S]*?\*/"
)


def unquoted(token: Token) -> str:
    r"""Return the text of a name or quotation.

    A doubled quote is one; a backslash only takes the meaning from a quote or a backslash, so that patterns such as
    ``\d`` may be written with one backslash or with two.
    """
    text = str(token)
    match token.type:
        case "BACKTICKED":
            return text[1:-1].replace("``", "`")
        case "RAW_QUOTED":
            return text[2:-1]
        case "BYTES_TEXT":
            return text_of_bytes(text)
        case "SINGLE_QUOTED" | "DOUBLE_QUOTED":
            return _DOUBLED_OR_ESCAPED[text[0]].sub(lambda match: match[1] or text[0], text[1:-1])
    return text


def literal_of(token: Token) -> Value:
    match token.type:
        case "TRUE" | "FALSE":
            return token.type == "TRUE"
        case "NULL":
            return None
        case "NUMBER":
            return _number(token)
    return unquoted(token)


def _number(token: Token) -> int | float:
    if len(token) > _LONGEST_NUMBER or not math.isfinite(float(token)):
        raise Refused(token, "The number is larger than any type holds.")
    return int(token) if re.fullmatch(r"[+-]?\d+", token) else float(token)


def table_name(parts: Sequence[Positioned[str]]) -> str:
    """Return ``db.table`` as it is; of ``indexed.<path>`` the path."""
    located = [part for part in parts if "/" in part.value]
    if not located:
        return ".".join(part.value for part in parts)
    if len(parts) == 1:
        return parts[0].value
    if len(parts) != 2 or located != [parts[1]] or parts[0].value.lower() != "indexed":
        raise Refused(parts[0].token, "A table is named by db.table, by `path`, or by indexed.`path`.")
    return parts[1].value


def as_text(at: Positioned[Value]) -> str:
    if isinstance(at.value, bool):
        return "true" if at.value else "false"
    return at.value if isinstance(at.value, str) else str(at.token)


def without_comments(text: str) -> str:
    """Return the text with a blank for each comment; what looks like one inside quotes stays."""
    return _COMMENT_OR_QUOTED.sub(lambda match: match[1] or " ", text).strip()


# --- The grammar of the statements ----------------------------------------------------------------------------------


_RULES = r"""
script: statement? (";" statement?)*

statement: create_table | drop_table | drop_partition
         | add_columns | alter_column_type | rename_column | drop_columns | set_table_properties
         | create_index | drop_index | rebuild_index | set_index_properties | refresh_index
         | show_indexes | describe_index
         | call

// --- tables
create_table: CREATE TABLE if_not_exists? table ("(" column_text ")")? table_clause* AS?
?table_clause: USING name                                       -> table_using
             | PARTITIONED BY names                             -> partitioned_by
             | CLUSTERED BY names INTO NUMBER BUCKETS           -> clustered_by
             | (TBLPROPERTIES | OPTIONS | WITH) properties      -> table_options
             | LOCATION text                                    -> location
             | COMMENT text                                     -> comment
drop_table: DROP TABLE if_exists? table PURGE?
drop_partition: ALTER TABLE table DROP if_exists? partition ("," partition)* PURGE?
add_columns: ALTER TABLE table ADD (COLUMN | COLUMNS) ("(" column_text ")" | bare_columns)
alter_column_type: ALTER TABLE table (ALTER | CHANGE) COLUMN? name TYPE type_text
rename_column: ALTER TABLE table RENAME COLUMN name TO name
set_table_properties: ALTER TABLE table SET TBLPROPERTIES properties
drop_columns: ALTER TABLE table DROP (COLUMN | COLUMNS) if_exists? (names | name ("," name)*)

// --- indexes
create_index: CREATE INDEX if_not_exists? name ON TABLE? table index_columns? index_clause*
?index_clause: USING kind index_columns?                        -> using
             | AS text                                          -> as_handler
             | WITH DEFERRED REBUILD                            -> deferred
             | PARTITIONED BY names                             -> partitioned_by
             | INCLUDE names                                    -> include
             | EXCLUDE names                                    -> exclude
             | (IDXPROPERTIES | OPTIONS) properties             -> idxproperties
             | IN TABLE table                                   -> in_table
             | ROW | STORED_BY                                  // refused as soon as they are read
             | STORED AS file_format                            -> stored_as
             | LOCATION text                                    -> location
             | TBLPROPERTIES properties                         -> tblproperties
             | COMMENT text                                     -> comment
index_columns: "(" (index_column ("," index_column)*)? ")"
?index_column: name | field | summary | grouped
// The text of an expression is found by its parentheses and read with the index.
field: name ("." name)+
summary: NAME "(" summary_item* ")"
grouped: "(" summary_item+ ")"
!summary_item: NAME | BACKTICKED | _text | NUMBER | EXPRESSION_SIGN | "," | "(" summary_item* ")"
file_format: (NAME | _text)+
kind: name | SINGLE_QUOTED | RAW_QUOTED
drop_index: DROP INDEX if_exists? name on_table?
on_table: ON TABLE? table
rebuild_index: ALTER INDEX name ON TABLE? table partition? REBUILD
set_index_properties: ALTER INDEX name ON TABLE? table partition? SET (IDXPROPERTIES | OPTIONS) properties
refresh_index: REFRESH INDEX name ON TABLE? table refresh_clause*
?refresh_clause: (FULL | INCREMENTAL | QUICK)                   -> mode
               | partition
               | INCLUDE names                                  -> include
               | EXCLUDE names                                  -> exclude
               | SCHEMA "(" column_text ")"                     -> schema
show_indexes: SHOW FORMATTED? (INDEX | INDEXES) (ON | FROM | IN) TABLE? table ((FROM | IN) name)?
describe_index: (DESCRIBE | DESC) (FORMATTED | EXTENDED)? INDEX name ON TABLE? table

// --- procedures
call: CALL dotted "(" (argument ("," argument)*)? ")"
argument: (ARGUMENT "=>")? literal

// --- parts
if_exists: IF EXISTS
if_not_exists: IF NOT EXISTS
table: table_part ("." table_part)*
table_part: NAME | BACKTICKED | _text
name: NAME | BACKTICKED | DOUBLE_QUOTED
names: "(" (name ("," name)*)? ")"
dotted: name ("." name)*
partition: PARTITION "(" partition_value ("," partition_value)* ")"
partition_value: name "=" partition_literal
?partition_literal: literal | (DATE | TIMESTAMP) text           -> typed_text
properties: "(" property ("," property)* ")"
property: property_key "="? literal
property_key: dotted | SINGLE_QUOTED | RAW_QUOTED
text: _text
_text: SINGLE_QUOTED | DOUBLE_QUOTED | RAW_QUOTED | BYTES_TEXT
literal: _text | NUMBER | TRUE | FALSE | NULL

// The text of a column list is found by its parentheses and read by Spark.
column_text: column_item+
!column_item: NAME | BACKTICKED | _text | NUMBER | COLUMN_SIGN | "," | "(" column_item* ")"
bare_columns: (NAME | BACKTICKED) column_item+                  -> column_text
type_text: (NAME | BACKTICKED) column_item*

COLUMN_SIGN: /[<>:]/
EXPRESSION_SIGN: /[-+*\/%.|&^~<>=!:\[\]]/
ARGUMENT: /[^\W\d][\w-]*(?=\s*=>)/
NAME: /[^\W\d][\w$]*/
BACKTICKED: /`(?:[^`]|``)+`/
SINGLE_QUOTED: /'(?:[^'\\]|''|\\[\s\S])*'/
DOUBLE_QUOTED: /"(?:[^"\\]|""|\\[\s\S])*"/
RAW_QUOTED.3: /r'[^']*'|r"[^"]*"/i
NUMBER: /[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?(?!\w)/i
BYTES_TEXT.3: /CAST\(X'(?:[0-9A-F]{2})*' AS STRING\)/
STORED_BY.3: /stored\s+by(?![\w$])/i
COMMENTS: /--[^\n]*|\/\*[\s\S]*?\*\//
WHITE: /[\s\ufeff]+/
%ignore COMMENTS
%ignore WHITE
"""

_NOT_KEYWORDS = {"COLUMN_SIGN", "EXPRESSION_SIGN", "ARGUMENT", "NAME", "BACKTICKED", "SINGLE_QUOTED",
                 "DOUBLE_QUOTED", "RAW_QUOTED", "BYTES_TEXT", "NUMBER", "STORED_BY", "COMMENTS", "WHITE"}  # fmt: skip
KEYWORDS = frozenset(re.findall(r"\b[A-Z][A-Z_]+\b", re.sub(r"//.*|/.*/i?$", "", _RULES, flags=re.M))) - _NOT_KEYWORDS

GRAMMAR = _RULES + "\n".join(f"{word}.2: /{word.lower()}(?![\\w$])/i" for word in sorted(KEYWORDS))

_CALLED = {
    "NAME": "a name",
    "BACKTICKED": "a name",
    "SINGLE_QUOTED": "a quoted text",
    "DOUBLE_QUOTED": "a quoted text",
    "RAW_QUOTED": "a quoted text",
    "BYTES_TEXT": "a quoted text",
    "NUMBER": "a number",
    "ARGUMENT": "name => value",
    "STORED_BY": "STORED BY",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "EQUAL": "'='",
    "DOT": "'.'",
    "__ANON_0": "'=>'",
    "$END": "the end",
}


def called(terminals: set[str]) -> list[str]:
    """Return the words for terminals: keywords as they are, in the order of the alphabet, then the others."""
    if "COLUMN_SIGN" in terminals:  # inside a column list nearly anything may come
        return ["the columns and their types", *(_CALLED[name] for name in ("RPAR",) if name in terminals)]
    keywords = sorted(name for name in terminals if name in KEYWORDS)
    others = [_CALLED[name] for name in _CALLED if name in terminals]
    return [*keywords, *dict.fromkeys(others)]
