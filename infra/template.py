"""Reads the templates of this folder without anything that must be installed.

What it takes is the part of YAML that these templates are written in: blocks and flows, tags of CloudFormation, quoted and
plain scalars, folded and literal text. What it does not know it refuses, with the line.
"""

import re

KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s"'\[\]{},#&*!|>%@`-][^"\[\]{}#]*?|\$\w+)\s*:(?:\s+|$)""")
# What the service defines for every template.
PSEUDO = {"AWS::AccountId", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackId", "AWS::StackName", "AWS::URLSuffix"}
NO_VALUE = object()


class Failed(Exception):
    """What a person can act on; printed without a trace."""


class Unknown(Exception):
    """A value that only the service knows."""


class Reader:
    """One document."""

    def __init__(self, name, text):
        self.name, self.lines, self.at = name, text.split("\n"), 0

    def failed(self, what):
        return Failed(f"{self.name}:{self.at + 1}: {what}")

    def peek(self):
        """Indent and text of the next line that says something; nothing at the end."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            text = line.strip()
            if text and not text.startswith("#"):
                return len(line) - len(line.lstrip()), text
            self.at += 1
        return None

    def block(self, least):
        """The block that begins on the next line, if it stands at least this far in."""
        found = self.peek()
        if not found or found[0] < least:
            return None
        indent, text = found
        if text.startswith("- ") or text == "-":
            return self.sequence(indent)
        return self.mapping(indent) if KEY.match(text) else self.value(text, indent)

    def sequence(self, indent):
        items = []
        while (found := self.peek()) and found[0] == indent and (found[1].startswith("- ") or found[1] == "-"):
            rest = found[1][1:].lstrip()
            inner = indent + len(found[1]) - len(rest)
            if KEY.match(rest):
                # A mapping whose first key stands behind the dash.
                self.lines[self.at] = " " * inner + rest
                items.append(self.mapping(inner))
            else:
                items.append(self.value(rest, indent))
        return items

    def mapping(self, indent):
        items = {}
        while (found := self.peek()) and found[0] == indent:
            match = KEY.match(found[1])
            if not match:
                raise self.failed(f"`{found[1]}` is no key and value")
            key = match[1].strip("\"'")
            if key in items:
                raise self.failed(f"`{key}` stands here twice")
            items[key] = self.value(found[1][match.end():], indent)
        if found and found[0] > indent:
            raise self.failed("this line is too far in")
        return items

    def value(self, text, indent):
        """The value that begins with `text` on this line; goes past it."""
        text = text.strip()
        tag = re.match(r"!(\w+)(?:\s+|$)", text)
        if tag:
            return tagged(tag[1], self.value(text[tag.end():], indent))
        if not text or text.startswith("#"):
            self.at += 1
            # A sequence may stand as far out as its key.
            found = self.peek()
            level = found and found[0] == indent and found[1].startswith("- ")
            return self.block(indent if level else indent + 1)
        if re.fullmatch(r"[|>]-?", text):
            return self.text(text, indent)
        if text[0] in "[{\"'":
            return self.flow(text)
        self.at += 1
        return scalar(re.split(r"\s#", text)[0].rstrip())

    def text(self, style, indent):
        """Folded or literal text, which goes on as long as lines stand further in."""
        self.at += 1
        lines = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            lines.append(line)
            self.at += 1
        while lines and not lines[-1].strip():
            lines.pop()
        depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        joined = ("\n" if style[0] == "|" else " ").join(line[depth:] for line in lines)
        return joined + ("" if style.endswith("-") else "\n")

    def flow(self, text):
        """A flow or a quoted scalar, on as many lines as it takes."""
        while True:
            try:
                value, rest = Flow(text).read()
            except IndexError:
                self.at += 1
                if self.at >= len(self.lines):
                    raise self.failed("this does not end") from None
                text += " " + self.lines[self.at].strip()
                continue
            except ValueError as error:
                raise self.failed(str(error)) from None
            if rest and not rest.startswith("#"):
                raise self.failed(f"`{rest}` is too much")
            self.at += 1
            return value


class Flow:
    """`[a, {b: !Ref c}]`; an IndexError when it does not end."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def read(self):
        value = self.value()
        return value, self.text[self.at:].strip()

    def skip(self):
        while self.text[self.at] == " ":
            self.at += 1
        return self.text[self.at]

    def value(self):
        opening = self.skip()
        tag = re.compile(r"!(\w+)\s+").match(self.text, self.at)
        if tag:
            self.at = tag.end()
            return tagged(tag[1], self.value())
        if opening == "[":
            return self.items("]", lambda items: items.append(self.value()), [])
        if opening == "{":
            return self.items("}", self.pair, {})
        if opening in "\"'":
            return self.quoted(opening)
        plain = re.compile(r"(?:[^,\[\]{}:]|:(?!\s))+").match(self.text, self.at)
        if not plain:
            raise ValueError(f"`{self.text[self.at:]}` begins no value")
        self.at = plain.end()
        return scalar(plain[0].strip())

    def items(self, closing, take, items):
        self.at += 1
        while self.skip() != closing:
            take(items)
            if self.skip() == ",":
                self.at += 1
            elif self.text[self.at] != closing:
                raise ValueError(f"`{self.text[self.at:]}` stands where a comma should")
        self.at += 1
        return items

    def pair(self, items):
        key = self.value()
        if self.skip() != ":":
            raise ValueError(f"`{key}` has no value")
        self.at += 1
        items[str(key)] = self.value()

    def quoted(self, quote):
        end = self.at + 1
        while self.text[end] != quote:
            end += 2 if quote == '"' and self.text[end] == "\\" else 1
        inner, self.at = self.text[self.at + 1:end], end + 1
        return re.sub(r"\\(.)", r"\1", inner) if quote == '"' else inner


def scalar(text):
    return int(text) if re.fullmatch(r"-?\d+", text) else {"true": True, "false": False, "null": None}.get(text, text)


def tagged(tag, value):
    """The long form of `!Tag`."""
    if tag == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}


def read(name, text):
    """A template as dictionaries and lists."""
    reader = Reader(name, text)
    document = reader.block(0)
    if reader.peek():
        raise reader.failed("this line belongs to nothing")
    return document


class Values:
    """What expressions of a template come to, with these parameters."""

    def __init__(self, document, given):
        declared = document.get("Parameters", {})
        defaults = {key: spec["Default"] for key, spec in declared.items() if "Default" in spec}
        self.document, self.known = document, {**defaults, **given}

    def condition(self, name):
        return self.holds(self.document["Conditions"][name])

    def holds(self, rule):
        (kind, value), = rule.items()
        if kind == "Condition":
            return self.condition(value)
        if kind == "Fn::Equals":
            left, right = map(self.of, value)
            return str(left) == str(right)
        if kind == "Fn::Not":
            return not self.holds(value[0])
        if kind in ("Fn::And", "Fn::Or"):
            return (all if kind == "Fn::And" else any)(map(self.holds, value))
        raise Failed(f"the condition `{kind}` is not known here")

    def of(self, value):
        """A value; NO_VALUE for what is left out, and Unknown when only the service knows."""
        if isinstance(value, list):
            return [item for item in map(self.of, value) if item is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (kind, inner), = value.items()
            if kind == "Ref":
                return self.ref(inner)
            if kind == "Fn::If":
                return self.of(inner[1] if self.condition(inner[0]) else inner[2])
            if kind == "Fn::Sub" and isinstance(inner, str):
                return re.sub(r"\$\{([\w:.]+)\}", lambda match: str(self.ref(match[1])), inner)
            if kind == "Fn::FindInMap":
                found = self.document["Mappings"]
                for key in map(self.of, inner):
                    found = found[key]
                return found
            if kind == "Fn::Join":
                return inner[0].join(str(part) for part in self.of(inner[1]))
            if kind.startswith("Fn::"):
                raise Unknown(kind)
        found = {key: self.of(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner is not NO_VALUE}

    def ref(self, name):
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self.known:
            return self.known[name]
        raise Unknown(name)

    def known_of(self, value):
        """A value, or nothing when only the service knows it."""
        try:
            found = self.of(value)
            return None if found is NO_VALUE else found
        except Unknown:
            return None
