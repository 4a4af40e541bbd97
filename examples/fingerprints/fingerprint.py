"""Fingerprints of calls, as Headwater makes them: a second implementation, for clients and for checking the first.

`python fingerprint.py` writes the test vectors of this folder anew; `python fingerprint.py CALL` prints one fingerprint.
"""

import hashlib
import json
import math
import struct
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

FORMAT = b"headwater-call-1"


class Tagged:
    """A value of a type that Python has no literal for."""

    def __init__(self, kind, value):
        self.kind, self.value = kind, value


def sized(kind, data):
    return kind + struct.pack(">Q", len(data)) + data


def text(value):
    return sized(b"s", value.encode())


def sequence(kind, values):
    return kind + struct.pack(">Q", len(values)) + b"".join(map(encode, values))


def pairs(kind, items):
    items = sorted(items)
    if len({key for key, _ in items}) != len(items):
        raise ValueError("a key is given twice")
    return kind + struct.pack(">Q", len(items)) + b"".join(key + value for key, value in items)


def fields(values):
    return pairs(b"k", [(text(name), encode(value)) for name, value in values.items()])


def moment(kind, seconds, nanos):
    return kind + struct.pack(">qI", seconds, nanos)


def decimal(value):
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("no finite decimal")
    kept = "".join(map(str, digits)).lstrip("0")
    stripped = kept.rstrip("0")
    if not stripped:
        return "0e0"
    return f"{'-' if sign else ''}{stripped}e{exponent + len(kept) - len(stripped)}"


def encode(value):
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"b" + bytes([value])
    if isinstance(value, int):
        return sized(b"i", str(value).encode())
    if isinstance(value, float):
        bits = 0x7FF8 << 48 if math.isnan(value) else struct.unpack(">Q", struct.pack(">d", value + 0.0))[0]
        return b"f" + struct.pack(">Q", 0 if value == 0 else bits)
    if isinstance(value, Decimal):
        return sized(b"d", decimal(value).encode())
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return sized(b"y", value)
    if isinstance(value, datetime):
        zone = value.tzinfo is not None
        since = value - datetime(1970, 1, 1, tzinfo=timezone.utc if zone else None)
        return moment(b"z" if zone else b"m", since.days * 86400 + since.seconds, since.microseconds * 1000)
    if isinstance(value, date):
        return b"D" + struct.pack(">q", (value - date(1970, 1, 1)).days)
    if isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return b"t" + struct.pack(">Q", (seconds * 10**6 + value.microsecond) * 1000)
    if isinstance(value, timedelta):
        return moment(b"u", value.days * 86400 + value.seconds, value.microseconds * 1000)
    if isinstance(value, UUID):
        return b"U" + value.bytes
    if isinstance(value, list):
        return sequence(b"l", value)
    if isinstance(value, tuple):
        return sequence(b"p", value)
    if isinstance(value, (set, frozenset)):
        members = sorted({encode(member) for member in value})
        return b"S" + struct.pack(">Q", len(members)) + b"".join(members)
    if isinstance(value, dict):
        return pairs(b"M", [(encode(key), encode(item)) for key, item in value.items()])
    if isinstance(value, Tagged) and value.kind == "map":
        return pairs(b"M", [(encode(key), encode(item)) for key, item in value.value])
    if isinstance(value, Tagged) and value.kind == "set":
        members = sorted({encode(member) for member in value.value})
        return b"S" + struct.pack(">Q", len(members)) + b"".join(members)
    if isinstance(value, Tagged) and value.kind == "record":
        name, members = value.value
        return b"R" + text(name) + fields(members)
    if isinstance(value, Tagged) and value.kind == "query":
        query = value.value
        head = b"".join(text(query.get(part, "")) for part in ("dialect", "database", "sql"))
        return b"Q" + head + sequence(b"l", query.get("parameters", []))
    raise ValueError(f"a {type(value).__name__} has no encoding")


def encoding(name, version=0, args=(), kwargs=None):
    return FORMAT + text(name) + encode(version) + sequence(b"l", list(args)) + fields(kwargs or {})


def fingerprint(name, version=0, args=(), kwargs=None):
    return hashlib.sha256(encoding(name, version, args, kwargs)).hexdigest()


def from_json(value):
    """A value from the typed JSON of the HTTP interface."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: from_json(item) for key, item in value.items()}
    (key, inner), = value.items()
    readers = {
        "$tuple": lambda: tuple(map(from_json, inner)),
        "$set": lambda: Tagged("set", list(map(from_json, inner))),
        "$map": lambda: Tagged("map", [(from_json(key), from_json(item)) for key, item in inner]),
        "$record": lambda: Tagged("record", (inner["name"], {k: from_json(v) for k, v in inner["fields"].items()})),
        "$query": lambda: Tagged("query", {**inner, "parameters": list(map(from_json, inner.get("parameters", [])))}),
        "$float": lambda: float(inner),
        "$decimal": lambda: Decimal(inner),
        "$bytes": lambda: bytes.fromhex(inner),
        "$uuid": lambda: UUID(inner),
        "$date": lambda: date.fromisoformat(inner),
        "$time": lambda: time.fromisoformat(inner),
        "$datetime": lambda: datetime.fromisoformat(inner.replace("Z", "+00:00")),
        "$duration": lambda: timedelta(microseconds=int(Decimal(inner) * 10**6)),
    }
    return readers[key]()


ARGUMENTS = {
    "null": "null", "true": "true", "false": "false", "zero": "0", "a number": "42", "below zero": "-7",
    "a large number": "123456789012345678901234567890", "a float": "1.5", "float zero #1": "0.0", "float zero #2": "-0.0",
    "not a number": '{"$float": "NaN"}', "infinity": '{"$float": "inf"}', "decimal #1": '{"$decimal": "1.50"}',
    "decimal #2": '{"$decimal": "15e-1"}', "decimal zero": '{"$decimal": "-0.00"}', "a large decimal": '{"$decimal": "-1200"}',
    "no text": '""', "text": '"organic"', "umlaut": '"\u00fcber"', "bytes": '{"$bytes": "00ff"}', "date": '{"$date": "2026-07-22"}',
    "an early date": '{"$date": "1969-12-31"}', "time": '{"$time": "13:37:00.25"}', "without zone": '{"$datetime": "2026-07-22T13:37:00"}',
    "moment #1": '{"$datetime": "2026-07-22T13:37:00Z"}', "moment #2": '{"$datetime": "2026-07-22T15:37:00+02:00"}',
    "span": '{"$duration": "90.5"}', "span below zero": '{"$duration": "-1.5"}',
    "uuid": '{"$uuid": "12345678-1234-5678-1234-567812345678"}', "empty list": "[]", "list": '[1, "a", null]',
    "tuple": '{"$tuple": [1, "a", null]}', "set #1": '{"$set": ["b", "a"]}', "set #2": '{"$set": ["a", "b", "a"]}',
    "empty map": "{}", "map #1": '{"x": 1, "y": [2]}', "map #2": '{"y": [2], "x": 1}', "map of numbers": '{"$map": [[1, "a"], [2, "b"]]}',
    "map of mixed keys": '{"$map": [[true, 1], ["true", 2], [null, 3]]}',
    "record": '{"$record": {"name": "shop.Filter", "fields": {"since": {"$date": "2026-01-01"}, "top": 3}}}',
    "query": '{"$query": {"dialect": "postgresql", "database": "default", "sql": "SELECT $1", "parameters": [1]}}',
}


def vectors():
    calls = [("no arguments", {"name": "report"}), ("a version", {"name": "report", "version": 2})]
    calls += [(f"argument {title}", {"name": "report", "args": [json.loads(text)]}) for title, text in ARGUMENTS.items()]
    calls.append(("two arguments", {"name": "report", "args": [1, 2]}))
    calls.append(("one list of two", {"name": "report", "args": [[1, 2]]}))
    calls.append(("named #1", {"name": "report", "kwargs": {"a": 1, "b": 2}}))
    calls.append(("named #2", {"name": "report", "kwargs": {"b": 2, "a": 1}}))
    for title, call in calls:
        data = (call["name"], call.get("version", 0), from_json(call.get("args", [])), from_json(call.get("kwargs", {})))
        yield {"title": title, "call": call, "encoding": encoding(*data).hex(), "fingerprint": fingerprint(*data)}


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("{"):
        print("fingerprint.py '{\"name\": .., \"version\": .., \"args\": [..], \"kwargs\": {..}}' prints the fingerprint of a call;")
        print("without a call it writes vectors.json anew")
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    elif len(sys.argv) > 1:
        asked = json.loads(sys.argv[1])
        print(fingerprint(asked["name"], asked.get("version", 0), from_json(asked.get("args", [])), from_json(asked.get("kwargs", {}))))
    else:
        lines = ",\n".join("  " + json.dumps(vector) for vector in vectors())
        Path(__file__).with_name("vectors.json").write_text(f"[\n{lines}\n]\n")
