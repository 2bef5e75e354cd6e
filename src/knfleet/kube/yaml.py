"""YAML as kubectl understands it, read to plain values and written back.

The C parser only splits the text into events; what a scalar means is ours (`kube.scalars`), and so
are anchors, merge keys and duplicate keys. Every failure is a `YamlError` that says where.
"""

import io
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

import yaml
from yaml import events

from knfleet.api.meta import Object
from knfleet.kube import yaml_scalars
from knfleet.kube.errors import KubeError

DEPTH = 200
"""Mappings and lists inside one another, at most."""
VALUES = 1_000_000
"""Values in one text, at most; the largest file of a release has some ten thousand."""
ALIASED = 100_000
"""Values that the aliases of one text stand for, at most."""
ALIASED_MIB = 8
"""How much text these values have, at most."""

NOT_BLANK = re.compile(r"\S")
HALF_PAIR = re.compile(r"[\ud800-\udfff]")
ESCAPED_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


class YamlError(KubeError):
    """A text that cannot be read as YAML, or a value that cannot be written."""

    def __init__(self, problem: str, *, source: str = "", document: int = 0, line: int = 0) -> None:
        where = [source or "YAML"]
        if line:
            where.append(f"line {line}")
        if document > 1:
            where.append(f"document {document}")
        super().__init__(f"{', '.join(where)}: {problem}")
        self.problem = problem
        self.source = source
        self.document = document
        """Counted from 1; 0 when it is not known."""
        self.line = line
        """Counted from 1; 0 when it is not known."""


def load_all(text: str | bytes, *, source: str = "") -> list[Object]:
    """The manifests in a text of YAML documents or JSON objects; empty documents are left out."""
    manifests: list[Object] = []
    for number, line, value in documents(text, source):
        if is_mapping(value):
            manifests.append(value)
        elif value is not None:
            problem = "a mapping is expected"
            raise YamlError(problem, source=source, document=number, line=line)
    return manifests


def load(text: str | bytes, *, source: str = "") -> Any:
    """The value of a text that holds one document; nothing in it reads as None."""
    values = [found for found in documents(text, source) if found[2] is not None]
    if len(values) > 1:
        number, line, _ = values[1]
        raise YamlError("one document is expected", source=source, document=number, line=line)
    return values[0][2] if values else None


def dump_all(objects: Iterable[Object]) -> str:
    """YAML that kubectl reads back as the same objects; keys keep their order."""
    text = io.StringIO()
    emitter: Any = DUMPER(text, allow_unicode=True, width=2**31 - 1)
    try:
        for event in writing(objects):
            emitter.emit(event)
    except RecursionError as error:
        raise YamlError("the value is nested too deep to be written") from error
    finally:
        emitter.dispose()
    return text.getvalue()


def is_mapping(value: object) -> TypeGuard[Object]:
    """Whether a value is a mapping; the keys of those we read are strings."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


# Reading

LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
DUMPER = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


def documents(text: str | bytes, source: str) -> Iterator[tuple[int, int, Any]]:
    """Number, first line and value of each document."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            raise YamlError("the text is not UTF-8", source=source, line=line) from error
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] == "{" and (objects := json_objects(text)) is not None:
        return iter([(number, 0, value) for number, value in enumerate(objects, 1)])
    return YamlReader(text, source).documents()


def json_objects(text: str) -> list[Any] | None:
    """The JSON objects that follow one another in a text; None when it is not JSON."""
    if sum(map(text.count, "{[,")) > VALUES:
        return None  # the other reader counts what is not in strings
    found: list[Any] = []
    at = 0
    try:
        while begin := NOT_BLANK.search(text, at):
            value, at = JSON.raw_decode(text, begin.start())
            found.append(value)
    except (ValueError, RecursionError):
        return None
    if ESCAPED_HALF_PAIR.search(text) and HALF_PAIR.search(json.dumps(found, ensure_ascii=False)):
        return None
    return found


def unique(pairs: list[tuple[str, Any]]) -> Object:
    """An object, if no key comes twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def no_constant(name: str) -> Any:
    """JSON has no NaN."""
    raise ValueError(name)


def json_float(digits: str) -> int | float:
    """A JSON number with a fraction or an exponent."""
    return yaml_scalars.json_number(float(digits))


# The reader of the standard library, since msgspec keeps the last of two equal keys in silence.
JSON = json.JSONDecoder(
    object_pairs_hook=unique,
    parse_int=yaml_scalars.json_integer,
    parse_float=json_float,
    parse_constant=no_constant,
)


NUMBERS = frozenset((int, float))


class PendingAnchor:
    """Marks an anchor whose value is still being read."""


class YamlReader:
    """Builds the values of a text from the parser's events."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.parser: Any = LOADER(text)
        self.document = 0
        self.depth = 0
        self.values = 0
        self.bytes = 0
        self.aliased = 0
        self.aliased_bytes = 0
        self.anchors: dict[str, tuple[Any, int, int] | PendingAnchor] = {}

    def documents(self) -> Iterator[tuple[int, int, Any]]:
        """Number, first line and value of each document."""
        try:
            while (event := self.next()) is not None:
                if isinstance(event, events.DocumentStartEvent):
                    self.document += 1
                    self.anchors = {}
                    first = self.next()
                    yield self.document, first.start_mark.line + 1, self.value(first)
        finally:
            self.parser.dispose()

    def next(self) -> Any:
        """The next event; None after the last."""
        try:
            return self.parser.get_event()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 0
            raise self.error(error.problem or "not YAML", line) from None
        except yaml.reader.ReaderError as error:
            line = self.text.encode("utf-8", "replace")[: error.position].count(b"\n") + 1
            raise self.error(
                f"a character that YAML does not allow ({error.reason})", line
            ) from None

    def error(self, problem: str, line: int) -> YamlError:
        return YamlError(problem, source=self.source, document=max(1, self.document), line=line)

    def value(self, event: Any) -> Any:
        """The value that begins with an event, as JSON has it."""
        value = self.node(event)
        if type(value) in NUMBERS:
            try:
                return yaml_scalars.json_number(value)
            except ValueError as error:
                raise self.error(str(error), event.start_mark.line + 1) from None
        return value

    def node(self, event: Any) -> Any:
        """What begins with an event."""
        if type(event) is events.AliasEvent:
            return self.alias(event)
        self.values += 1
        if self.values > VALUES:
            raise self.error(f"there are more than {VALUES} values", event.start_mark.line + 1)
        build = self.scalar if type(event) is events.ScalarEvent else self.collection
        anchor = event.anchor
        if anchor is None:
            return build(event)
        values, size = self.values - 1, self.bytes
        pending = self.anchors[anchor] = PendingAnchor()
        value = build(event)
        if self.anchors[anchor] is pending:
            self.anchors[anchor] = (value, self.values - values, self.bytes - size)
        return value

    def scalar(self, event: Any) -> yaml_scalars.Scalar:
        """The value of one scalar."""
        self.bytes += len(event.value.encode(errors="replace"))
        tag = event.tag
        if tag is None:
            if not event.implicit[0]:
                return event.value
            value = yaml_scalars.plain(event.value)
        elif tag == "!":
            return event.value
        else:
            try:
                value = yaml_scalars.tagged(tag, event.value)
            except ValueError as error:
                raise self.error(str(error), event.start_mark.line + 1) from None
        return value

    def collection(self, event: Any) -> Any:
        """A list or a mapping."""
        self.depth += 1
        if self.depth > DEPTH:
            line = event.start_mark.line + 1
            raise self.error(f"values are nested deeper than {DEPTH} levels", line)
        mapping = type(event) is events.MappingStartEvent
        value = self.mapping() if mapping else self.sequence()
        self.depth -= 1
        return value

    def sequence(self) -> list[Any]:
        """A list, up to its end."""
        found: list[Any] = []
        while type(event := self.next()) is not events.SequenceEndEvent:
            found.append(self.value(event))
        return found

    def mapping(self) -> Object:
        """A mapping, up to its end."""
        found: Object = {}
        own: set[str] = set()
        while type(event := self.next()) is not events.MappingEndEvent:
            if is_merge(event):
                # kubectl merges where the key stands: what came before is overwritten.
                found.update(self.merged(self.next()))
                continue
            key = self.key(event)
            if key in own:
                raise self.error(f"the key {key!r} is there twice", event.start_mark.line + 1)
            own.add(key)
            event = self.next()
            found[key] = self.value(event)
        return found

    def key(self, event: Any) -> str:
        """The key that begins with an event."""
        value = self.node(event)
        if type(value) is str:
            return value
        line = event.start_mark.line + 1
        if isinstance(value, dict | list):
            raise self.error("a key is a list or a mapping, which JSON cannot have", line)
        try:
            return yaml_scalars.key(value)
        except ValueError as error:
            raise self.error(str(error), line) from None

    def merged(self, event: Any) -> Object:
        """What a merge key adds; of several mappings the first wins."""
        value = self.value(event)
        maps = value if is_list(value) else [value]
        found: Object = {}
        for one in reversed(maps):
            if not is_mapping(one):
                problem = "a merge key (<<) takes a mapping or a list of mappings"
                raise self.error(problem, event.start_mark.line + 1)
            found.update(one)
        return found

    def alias(self, event: Any) -> Any:
        """A copy of what an anchor names, so that a change in one place stays there."""
        line = event.start_mark.line + 1
        named = self.anchors.get(event.anchor)
        if named is None:
            raise self.error(f"there is no anchor &{event.anchor} before this alias", line)
        if isinstance(named, PendingAnchor):
            raise self.error(f"the value of the anchor &{event.anchor} contains itself", line)
        value, values, size = named
        self.values += values
        self.bytes += size
        self.aliased += values
        self.aliased_bytes += size
        if self.aliased > ALIASED:
            raise self.error(f"aliases stand for more than {ALIASED} values", line)
        if self.aliased_bytes > ALIASED_MIB * 1024 * 1024:
            raise self.error(f"aliases stand for more than {ALIASED_MIB} MiB", line)
        return copied(value)


def is_merge(event: Any) -> bool:
    """Whether a key is an unquoted `<<`."""
    if type(event) is not events.ScalarEvent or event.value != "<<":
        return False
    return event.implicit[0] if event.tag is None else event.tag == yaml_scalars.TAG + "merge"


def copied(value: Any) -> Any:
    """A value that shares nothing with the one given."""
    if is_mapping(value):
        return {key: copied(inner) for key, inner in value.items()}
    if is_list(value):
        return [copied(inner) for inner in value]
    return value


# Writing


def writing(objects: Iterable[Object]) -> Iterator[events.Event]:
    """The events that write the objects down."""
    yield events.StreamStartEvent()
    for manifest in objects:
        yield events.DocumentStartEvent(explicit=False)
        yield from written(manifest)
        yield events.DocumentEndEvent(explicit=False)
    yield events.StreamEndEvent()


def written(value: Any) -> Iterator[events.Event]:
    """The events that write one value down."""
    if is_mapping(value):
        yield events.MappingStartEvent(None, None, True, flow_style=not value)
        for key, inner in value.items():
            yield text_event(key, "")
            yield from written(inner)
        yield events.MappingEndEvent()
    elif is_list(value):
        yield events.SequenceStartEvent(None, None, True, flow_style=not value)
        for inner in value:
            yield from written(inner)
        yield events.SequenceEndEvent()
    elif isinstance(value, str):
        yield text_event(value, "|" if "\n" in value else "")
    else:
        yield events.ScalarEvent(None, None, (True, False), scalar_text(value))


def text_event(text: object, style: str) -> events.Event:
    """A string, in quotes where it would be read as something else."""
    if not isinstance(text, str):
        raise YamlError(f"a key is of type {type(text).__name__}, not a string")
    if HALF_PAIR.search(text):
        raise YamlError("a string holds half of a surrogate pair, which UTF-8 cannot have")
    plain = yaml_scalars.reads_as_itself(text)
    return events.ScalarEvent(None, None, (plain, True), text, style=style or None)


def scalar_text(value: object) -> str:
    """A number or a word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise YamlError(f"a {type(value).__name__} cannot be written as JSON, and so not as YAML")
