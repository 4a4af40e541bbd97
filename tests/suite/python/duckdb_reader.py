"""Reads silver.orders with DuckDB: STATE WAREHOUSE METADATA SNAPSHOT -> JSON with the rows now and then."""
import importlib.util
import json
import pathlib
import sys

import duckdb

_, _, metadata, snapshot = sys.argv[1:]
connection = duckdb.connect()
for name in ("avro", "iceberg"):
    # Extensions that pip installed, for machines that cannot reach DuckDB's own server.
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    found = [file for place in (package.submodule_search_locations if package else []) for file in pathlib.Path(place).rglob("*.duckdb_extension*")]
    if found:
        connection.execute(f"LOAD '{found[0]}'")
    else:
        connection.execute(f"INSTALL {name}")
        connection.execute(f"LOAD {name}")


def rows(extra):
    sql = f"SELECT id, region, amount, _seq FROM iceberg_scan(?{extra})"
    return [list(row) for row in connection.execute(sql, [metadata]).fetchall()]


json.dump({"now": rows(""), "past": rows(f", snapshot_from_id => {int(snapshot)}")}, sys.stdout)
