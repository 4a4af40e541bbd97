"""Reads silver.orders by its name with PyIceberg: ENDPOINT CATALOG-TABLE SNAPSHOT -> JSON with the rows now and then."""
import json
import os
import sys

from pyiceberg.catalog import load_catalog

endpoint, name, snapshot = sys.argv[1:]
catalog = load_catalog(
    "headwater",
    **{
        "type": "dynamodb",
        "table-name": name,
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "s3.region": os.environ["AWS_DEFAULT_REGION"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    },
)
assert ("silver", "orders") in catalog.list_tables("silver"), catalog.list_tables("silver")
table = catalog.load_table("silver.orders")


def rows(scan):
    found = scan.to_arrow().select(["id", "region", "amount", "_seq"])
    return [list(row.values()) for row in found.to_pylist()]


json.dump({"now": rows(table.scan()), "past": rows(table.scan(snapshot_id=int(snapshot)))}, sys.stdout)
