#!/usr/bin/env python3
"""Prints what a deployment costs: requests.json (counted by a test) times list prices. Standard library only.

    infra/prices.py [--rate 10] [--event-kb 1] [--write]

`--write` puts the tables into README.md of this folder and of the repository, `--check` says whether they are the ones
there. No free tier is taken off. What is not counted but assumed stands in `Assumed`, and is printed with the tables.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- prices: infra/prices.py --write -->", "<!-- /prices -->"

# List prices of us-east-1 in dollars, as of November 2025; look them up again before anything depends on them.
AS_OF = "November 2025"
MILLION = 1_000_000
API_REQUEST = 1.00 / MILLION
LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_SECOND_ARM = 0.0000133334
DYNAMODB_WRITE_UNIT = 0.625 / MILLION
DYNAMODB_READ_UNIT = 0.125 / MILLION
SQS_STANDARD = 0.40 / MILLION
SQS_FIFO = 0.50 / MILLION
S3_PUT = 0.005 / 1_000
S3_GET = 0.0004 / 1_000
LOGS_GB = 0.50
TRACE = 5.00 / MILLION
ALARM_MONTH = 0.10

MONTH_SECONDS = 30 * 86_400
SQS_RECEIVED_AT_ONCE = 10
SERVICES = ("HTTP API", "Lambda", "DynamoDB", "SQS", "S3", "Logs and traces")


@dataclasses.dataclass(frozen=True)
class Assumed:
    """What nobody counted."""

    ingest_ms: float = 25
    batch_ms: float = 60
    step_ms: float = 30
    refresh_ms: float = 1_000
    ingest_gb: float = 0.5
    step_gb: float = 0.25
    refresh_gb: float = 2.9375
    # Of the rows of a commit beside the events themselves, and of a small item.
    frame_kb: float = 2
    access_log_kb: float = 0.4
    invocation_log_kb: float = 0.7
    traced: float = 0.05
    # Pollers of the service per queue, each of which waits 20 seconds for a message.
    pollers: int = 5
    alarms: int = 18


def lambda_cost(calls, ms, gb):
    return calls * (LAMBDA_REQUEST + ms / 1_000 * gb * LAMBDA_GB_SECOND_ARM)


def observed(assumed, invocations, requests=0):
    """Logs and traces of invocations, and the access log of requests."""
    kilobytes = invocations * assumed.invocation_log_kb + requests * assumed.access_log_kb
    return kilobytes / MILLION * LOGS_GB + invocations * assumed.traced * TRACE


def dynamodb(operation, rows_kb=0.0):
    """One operation. A transaction's item costs double; the one item that holds rows costs by its kilobytes. What is written
    or read alone is no transaction on DynamoDB and costs half of what is said here."""
    items = operation.get("state_items_written", 0)
    rows = math.ceil(rows_kb)
    small = items - 1 if rows else items
    # Keys read together are read in a transaction; a query is one strongly consistent read.
    reads = 2 * operation.get("state_keys_read", 0) + operation.get("state_queries", 0)
    return 2 * (small + rows) * DYNAMODB_WRITE_UNIT + reads * DYNAMODB_READ_UNIT


def s3(operation):
    return operation.get("object_puts", 0) * S3_PUT + operation.get("object_gets", 0) * S3_GET


def add(*costs):
    return {name: sum(cost.get(name, 0.0) for cost in costs) for name in SERVICES}


def times(count, cost):
    return {name: count * dollars for name, dollars in cost.items()}


def look(counts, assumed):
    """One run of `coalesce` that finds nothing to do."""
    return {
        "Lambda": lambda_cost(1, assumed.step_ms, assumed.step_gb),
        "DynamoDB": dynamodb(counts["idle_step"]),
        "Logs and traces": observed(assumed, 1),
    }


def announced(sends):
    """Messages of the queue of announcements: sent one by one, received and deleted ten at a time."""
    return sends * SQS_STANDARD * (1 + 2 / SQS_RECEIVED_AT_ONCE)


def direct(counts, assumed, event_kb):
    """One event through a function; looks are not in it."""
    webhook = counts["webhook"]
    return {
        "HTTP API": API_REQUEST,
        "Lambda": lambda_cost(1, assumed.ingest_ms, assumed.ingest_gb),
        "DynamoDB": dynamodb(webhook, event_kb + assumed.frame_kb),
        "SQS": announced(webhook["sends"]),
        "S3": s3(webhook),
        "Logs and traces": observed(assumed, 1, 1),
    }


def buffered(counts, assumed, event_kb, batch):
    """A batch of events through the buffer; looks are not in it. The first event commits by itself, as it is not known
    that others follow, and those that come meanwhile commit together."""
    first, commit = counts["webhook"], counts["batch"]
    rows_kb = (batch - 1) * event_kb + assumed.frame_kb
    # Each message is put by the API, and received and deleted by the service.
    messages = batch * SQS_STANDARD * (1 + 2 / SQS_RECEIVED_AT_ONCE)
    return {
        "HTTP API": batch * API_REQUEST,
        "Lambda": lambda_cost(1, assumed.batch_ms, assumed.ingest_gb),
        "DynamoDB": dynamodb(commit, rows_kb) + dynamodb(first, event_kb + assumed.frame_kb),
        "SQS": messages + announced(commit["sends"] + first["sends"]),
        "S3": s3(commit),
        "Logs and traces": observed(assumed, 1, batch),
    }


def refresh(counts, assumed):
    """One refresh of one small model: `coalesce` and `refresh` once each."""
    asked = counts["refresh"]
    return {
        "Lambda": lambda_cost(1, assumed.step_ms, assumed.step_gb)
        + lambda_cost(1, assumed.refresh_ms, assumed.refresh_gb),
        "DynamoDB": dynamodb(asked),
        # Sent, received and deleted.
        "SQS": 3 * asked["sends"] * SQS_FIFO,
        "S3": s3(asked),
        "Logs and traces": observed(assumed, 2),
    }


def idle_month(counts, assumed):
    ticks, hours = MONTH_SECONDS // 60, MONTH_SECONDS // 3_600
    polls = assumed.pollers * MONTH_SECONDS // 20
    costs = times(ticks, look(counts, assumed))
    # Upkeep asks too, when its time has come: of the hour all was counted.
    costs["DynamoDB"] = hours * dynamodb(counts["idle_hour"])
    jobs = hours * counts["idle_hour"]["upkeep_sends"]
    costs["Lambda"] += lambda_cost(jobs, assumed.refresh_ms, assumed.refresh_gb)
    costs["SQS"] = polls * (2 * SQS_STANDARD + SQS_FIFO) + 3 * jobs * SQS_FIFO
    costs["Logs and traces"] += observed(assumed, jobs) + assumed.alarms * ALARM_MONTH
    return add(costs)


def table(columns):
    head = ["", *SERVICES, "together"]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for name, costs in columns:
        cells = [f"{costs[service]:.2f}" for service in SERVICES]
        lines.append("| " + " | ".join([name, *cells, f"**{sum(costs.values()):.2f}**"]) + " |")
    return "\n".join(lines)


def bills(counted, assumed, rate, event_kb):
    """What is paid for, each with its dollars by service."""
    counts, batch = counted["operations"], counted["batch_size"]
    # Announcements are gathered for a second, so at most one look a second is taken.
    looks = MILLION / max(rate, 1)
    seen = times(looks, look(counts, assumed))
    return [
        ("a million events, direct", add(times(MILLION, direct(counts, assumed, event_kb)), seen)),
        (
            f"a million events, buffered, {batch} at a time",
            add(times(MILLION / batch, buffered(counts, assumed, event_kb, batch)), seen),
        ),
        ("100,000 refreshes of a small model", add(times(100_000, refresh(counts, assumed)))),
        ("a month in which nothing happens", idle_month(counts, assumed)),
    ]


def requests(counted):
    """A table of the requests of each operation."""
    counts, batch = counted["operations"], counted["batch_size"]
    together = dict(counts["webhook"])
    for kind, count in counts["batch"].items():
        together[kind] = together.get(kind, 0) + count
    lines = ["| requests to | S3 | DynamoDB | SQS | in all |", "|---|---:|---:|---:|---:|"]
    for name, asked in [
        ("commit a webhook", counts["webhook"]),
        ("commit a webhook too large to keep inline", counts["large_webhook"]),
        (f"commit {batch} webhooks that come through the buffer", together),
        ("refresh a small model", counts["refresh"]),
        ("look and find nothing to do", counts["idle_step"]),
        ("pass an hour in which nothing happens", counts["idle_hour"]),
    ]:
        services = [
            ("object_puts", "object_gets"),
            ("state_transactions", "state_gets", "state_queries"),
            ("sends", "upkeep_sends"),
        ]
        cells = [sum(asked.get(kind, 0) for kind in kinds) for kinds in services]
        lines.append("| " + " | ".join([name, *map(str, cells), f"**{sum(cells)}**"]) + " |")
    return "\n".join(lines)


def summary(counted, assumed, rate, event_kb):
    """The short of it: requests, and dollars by operation."""
    lines = ["| dollars | |", "|---|---:|"]
    lines += [f"| {name} | {sum(costs.values()):.2f} |" for name, costs in bills(counted, assumed, rate, event_kb)]
    return "\n\n".join([requests(counted), "\n".join(lines)])


def report(counted, assumed, rate, event_kb):
    counts = counted["operations"]
    rows = bills(counted, assumed, rate, event_kb)
    given = ", ".join(f"`{field.name}` {getattr(assumed, field.name):g}" for field in dataclasses.fields(assumed))
    asked = "; ".join(
        f"{name.replace('_', ' ')}: " + ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.items())
        for name, kinds in counts.items()
    )
    return "\n\n".join(
        [
            f"Dollars at list prices of us-east-1, {AS_OF}, arm64, without any free tier, {rate:g} events a second of "
            f"{event_kb:g} KB:",
            table(rows),
            "Refreshes come on top of events: with a steady stream, one a second per model at most, however many events "
            "there are.",
            f"Counted (`requests.json`): {asked}.",
            f"Assumed, not measured on AWS: {given}. Not in it: storage, detailed metrics of the API, transfer, retries.",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10, help="events a second")
    parser.add_argument("--event-kb", type=float, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    counted = json.loads((HERE / "requests.json").read_text())
    text = report(counted, Assumed(), options.rate, options.event_kb)
    short = summary(counted, Assumed(), options.rate, options.event_kb)
    if not (options.write or options.check):
        print(short, text, sep="\n\n")
        return
    block = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    for readme, tables in [(HERE / "README.md", text), (HERE.parent / "README.md", short)]:
        before = readme.read_text()
        if not block.search(before):
            sys.exit(f"{readme} has no lines `{BEGIN}` and `{END}`")
        after = block.sub(lambda _: f"{BEGIN}\n{tables}\n{END}", before)
        if options.check and after != before:
            sys.exit(f"{readme} has other prices: infra/prices.py --write")
        if options.write:
            readme.write_text(after)


if __name__ == "__main__":
    main()
