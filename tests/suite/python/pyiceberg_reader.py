"""Reads silver.orders with PyIceberg: STATE WAREHOUSE METADATA SNAPSHOT -> JSON with the rows now and then."""
import json
import sys

from pyiceberg.catalog.sql import SqlCatalog

state, warehouse, _, snapshot = sys.argv[1:]
catalog = SqlCatalog("headwater", uri=f"sqlite:///{state}", warehouse=f"file://{warehouse}", init_catalog_tables="false")
table = catalog.load_table("silver.orders")


def rows(scan):
    found = scan.to_arrow().select(["id", "region", "amount", "_seq"])
    return [list(row.values()) for row in found.to_pylist()]


json.dump({"now": rows(table.scan()), "past": rows(table.scan(snapshot_id=int(snapshot)))}, sys.stdout)
