"""What a deployment creates, from the templates alone: nothing here asks AWS anything."""

import pathlib
import re

import template
from template import Failed

HERE = pathlib.Path(__file__).resolve().parent
# In order: each takes outputs of those before it.
STACKS = ["storage", "queues", "roles", "functions", "http", "alarms"]
# Programs by the template parameter that takes the key of their zip.
PROGRAMS = {"IngestCode": "ingest", "CoalesceCode": "coalesce", "SweepCode": "sweep", "SqlCode": "sql"}
# What a project has that a function needs.
PROJECT_FILES = ["headwater.yml", "transform/**/*.sql"]
# What the SAM transform makes of an event of a function.
EVENTS = {"SQS": ["AWS::Lambda::EventSourceMapping"], "Schedule": ["AWS::Events::Rule", "AWS::Lambda::Permission"]}
# Processors in the header of a program, as Linux numbers them.
MACHINES = {62: "x86_64", 183: "arm64"}


def documents():
    """The templates, read."""
    return {stack: template.read(f"{stack}.yaml", (HERE / f"{stack}.yaml").read_text()) for stack in STACKS}


def program(programs, name):
    """The file of a program; nothing when it is not built."""
    # Plain cargo leaves a file, `cargo lambda build` a folder with the file in it.
    places = (pathlib.Path(programs) / name, pathlib.Path(programs) / name / "bootstrap")
    return next((place for place in places if place.is_file()), None)


def project_files(project):
    """Files of a project that are packed beside each program."""
    project = pathlib.Path(project)
    return [file for pattern in PROJECT_FILES for file in sorted(project.glob(pattern))]


def refused(key, spec, value):
    """Why a parameter does not take a value; nothing when it does."""
    allowed = [str(one).lower() if isinstance(one, bool) else str(one) for one in spec.get("AllowedValues", [])]
    if allowed and value not in allowed:
        return f"{key} is one of {', '.join(allowed)}, not `{value}`"
    if "AllowedPattern" in spec and not re.search(spec["AllowedPattern"], value):
        wanted = spec.get("ConstraintDescription", f"of the form {spec['AllowedPattern']}")
        return f"{key} must be {wanted}, and `{value}` is not"
    if spec["Type"] == "Number":
        if not re.fullmatch(r"-?\d+", value):
            return f"{key} is a number, and `{value}` is none"
        least, most = spec.get("MinValue"), spec.get("MaxValue")
        if (least is not None and int(value) < least) or (most is not None and int(value) > most):
            return f"{key} is {value}, and goes from {least} to {'any' if most is None else most}"
    return None


def resources(document, values):
    """How many resources of each type a template makes, its transforms carried out."""
    counts = {}

    def count(kind):
        counts[kind] = counts.get(kind, 0) + 1

    def add(name, resource):
        if name.startswith("Fn::ForEach::"):
            _, over, each = resource
            for _ in over:
                for inner in each.items():
                    add(*inner)
            return
        if "Condition" in resource and not values.condition(resource["Condition"]):
            return
        kind, properties = resource["Type"], resource.get("Properties", {})
        if kind == "AWS::Serverless::Function":
            kind = "AWS::Lambda::Function"
            if "EventInvokeConfig" in properties:
                count("AWS::Lambda::EventInvokeConfig")
            for event in properties.get("Events", {}).values():
                for made in EVENTS[event["Type"]]:
                    count(made)
        count(kind)

    for item in document["Resources"].items():
        add(*item)
    return [{"type": kind, "count": counts[kind]} for kind in sorted(counts)]


def function(resource, values, programs, shared):
    """One function as it will be."""
    properties = resource["Properties"]
    name = PROGRAMS[properties["CodeUri"]["Key"]["Ref"]]
    file = program(programs, name)
    size = file.stat().st_size if file else 0
    return {
        "name": values.known_of(properties["FunctionName"]),
        "program": name,
        "file": str(file) if file else None,
        "bytes": size,
        "architecture": values.known_of(shared["Architectures"])[0],
        "memory": number(values.known_of(properties["MemorySize"])),
        "seconds": number(values.known_of(properties["Timeout"])),
    }


def number(value):
    return None if value is None else int(value)


def machine(file):
    """What a program was built for; nothing when it is no program of Linux."""
    with open(file, "rb") as opened:
        header = opened.read(20)
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return None
    return MACHINES.get(int.from_bytes(header[18:20], "little"), "another processor")


def check(given, read):
    """Everything that is wrong with the parameters that were given."""
    declared = {key: spec for document in read.values() for key, spec in document["Parameters"].items()}
    problems = []
    unknown = sorted(set(given).difference(declared))
    if unknown:
        problems.append(f"no template has a parameter {', '.join(unknown)}")
    problems += [why for key, value in given.items() if key in declared and (why := refused(key, declared[key], str(value)))]
    made = set(given) | set(PROGRAMS)
    for stack, document in read.items():
        for key, spec in document["Parameters"].items():
            if "Default" not in spec and key not in made:
                problems.append(f"{stack}.yaml: nothing gives {key}: it is no output of a stack before it")
        made.update(document.get("Outputs", {}))
    return problems


def make(name, project, programs, settings):
    """The plan: what is created, what differs from defaults, and what would be refused."""
    read, given = documents(), dict(settings, Name=name)
    problems = check(given, read)
    plan = {"name": name, "stacks": [], "functions": [], "parameters": [], "notes": [], "problems": problems}
    if problems:
        # Nothing that is computed from refused values would be true.
        return plan
    known = dict(given)
    for stack, document in read.items():
        values = template.Values(document, known)
        plan["stacks"].append({"stack": f"{name}-{stack}", "resources": resources(document, values)})
        if stack == "functions":
            shared = document["Globals"]["Function"]
            made = [one for one in document["Resources"].values() if one["Type"] == "AWS::Serverless::Function"]
            plan["functions"] = [function(one, values, programs, shared) for one in made]
            plan["notes"] += notes(values)
        for key, spec in document["Parameters"].items():
            default = text(spec["Default"]) if "Default" in spec else None
            if key in given and key != "Name" and text(given[key]) != default:
                row = {"name": key, "value": text(given[key]), "default": default}
                if row not in plan["parameters"]:
                    plan["parameters"].append(row)
        outputs = {key: values.known_of(output["Value"]) for key, output in document.get("Outputs", {}).items()}
        known.update({key: value for key, value in outputs.items() if value is not None and key not in known})
    problems += packed_problems(plan, project, programs, bool(known.get("Endpoint")))
    return plan


def packed_problems(plan, project, programs, emulated):
    """What is wrong with the programs and the project."""
    problems = []
    if not any(file.suffix == ".sql" for file in project_files(project)):
        problems.append(f"{project} has no models under transform/")
    missing = sorted({one["program"] for one in plan["functions"] if not one["file"]})
    if missing:
        problems.append(
            f"{programs} has no program {', '.join(missing)}: build with `headwater deploy --build`, or name another folder "
            "with --programs"
        )
    if emulated:
        # It runs programs of this machine, whatever that is.
        return problems
    for file, wanted in sorted({(one["file"], one["architecture"]) for one in plan["functions"] if one["file"]}):
        built = machine(file)
        if built != wanted:
            what = f"is built for {built}" if built else "is no program of Linux"
            problems.append(f"{file} {what}, and functions run on {wanted} (--arch, or the parameter Architecture)")
    return problems


def notes(values):
    """What a person should know of a deployment that nothing refuses."""
    notes = []
    if not values.known["TokenDigests"]:
        for key, who in (("IngestAuth", "senders of webhooks"), ("ControlAuth", "callers of everything else")):
            if values.known[key] == "NONE":
                notes.append(
                    f"{key} is NONE and TokenDigests is empty: {who} are refused until `--set TokenDigests=..` names what "
                    "`headwater token` prints"
                )
    return notes


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)
