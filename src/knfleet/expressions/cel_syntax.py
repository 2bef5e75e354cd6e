"""The syntax tree of a compiled CEL expression.

The CEL library gives it away only in its serialized form: a `cel.expr.CheckedExpr` of protocol
buffers, of which this module reads the few fields that say what an expression does. The format is
part of the CEL specification.
"""

from collections.abc import Iterator

from msgspec import Struct


class ConstantNode(Struct, frozen=True):
    """A literal; `size` is the number of bytes of a text."""

    size: int


class Identifier(Struct, frozen=True):
    """A variable."""

    name: str


class Select(Struct, frozen=True):
    """A field of something."""

    operand: "Node"


class CallNode(Struct, frozen=True):
    """A function or an operator; the object of a method is its first argument."""

    function: str
    arguments: "tuple[Node, ...]"


class CollectionNode(Struct, frozen=True):
    """A list or a map that is written out."""

    elements: "tuple[Node, ...]"


class Comprehension(Struct, frozen=True):
    """What macros such as `all`, `exists`, `map` and `filter` stand for."""

    variables: tuple[str, ...]
    range: "Node"
    accumulator: str
    start: "Node"
    condition: "Node"
    step: "Node"
    result: "Node"


Node = ConstantNode | Identifier | Select | CallNode | CollectionNode | Comprehension

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
EMPTY = ConstantNode(0)


def tree(serialized: bytes) -> Node:
    """The tree of a serialized expression, which is a CheckedExpr within an Any."""
    checked = Message(serialized).part(2)
    return node(checked.part(4))


def functions(root: Node) -> frozenset[str]:
    """The names of all functions and operators that an expression calls."""
    return frozenset(each.function for each in walk(root) if isinstance(each, CallNode))


def walk(root: Node) -> Iterator[Node]:
    """A node and everything below it."""
    yield root
    for child in children(root):
        yield from walk(child)


def children(parent: Node) -> tuple[Node, ...]:
    """The nodes directly below one."""
    match parent:
        case Select():
            return (parent.operand,)
        case CallNode():
            return parent.arguments
        case CollectionNode():
            return parent.elements
        case Comprehension():
            return (parent.range, parent.start, parent.condition, parent.step, parent.result)
        case _:
            return ()


def node(message: "Message") -> Node:
    """The node that a message `cel.expr.Expr` describes."""
    for number, read in READERS.items():
        if (found := message.find(number)) is not None:
            return read(found)
    return EMPTY


def constant(message: "Message") -> Node:
    texts = message.values.get(6, []) + message.values.get(7, [])
    return ConstantNode(sum(len(text) for text in texts))


def identifier(message: "Message") -> Node:
    return Identifier(message.text(1))


def select(message: "Message") -> Node:
    return Select(node(message.part(1)))


def call(message: "Message") -> Node:
    target = [] if message.find(1) is None else [node(message.part(1))]
    return CallNode(message.text(2), (*target, *map(node, message.parts(3))))


def elements(message: "Message") -> Node:
    return CollectionNode(tuple(map(node, message.parts(1))))


def entries(message: "Message") -> Node:
    pairs = [(node(entry.part(3)), node(entry.part(4))) for entry in message.parts(2)]
    return CollectionNode(tuple(each for pair in pairs for each in pair))


def comprehension(message: "Message") -> Node:
    return Comprehension(
        variables=tuple(name for name in (message.text(1), message.text(8)) if name),
        range=node(message.part(2)),
        accumulator=message.text(3),
        start=node(message.part(4)),
        condition=node(message.part(5)),
        step=node(message.part(6)),
        result=node(message.part(7)),
    )


READERS = {
    3: constant,
    4: identifier,
    5: select,
    6: call,
    7: elements,
    8: entries,
    9: comprehension,
}
"""The kinds of nodes by the number of their field."""


class Message:
    """One message of protocol buffers: the length-delimited fields by number."""

    def __init__(self, content: bytes) -> None:
        self.values: dict[int, list[bytes]] = {}
        position = 0
        while position < len(content):
            tag, position = varint(content, position)
            number, kind = tag >> 3, tag & 7
            if kind == VARINT:
                _, position = varint(content, position)
            elif kind == BYTES:
                length, position = varint(content, position)
                self.values.setdefault(number, []).append(content[position : position + length])
                position += length
            elif kind in (FIXED64, FIXED32):
                position += 8 if kind == FIXED64 else 4
            else:
                raise ValueError(f"field {number} has the unknown wire type {kind}")

    def find(self, number: int) -> "Message | None":
        """A message in a field; None when the field is absent."""
        found = self.values.get(number)
        return None if found is None else Message(found[-1])

    def part(self, number: int) -> "Message":
        """A message in a field; an empty one when the field is absent."""
        return self.find(number) or Message(b"")

    def parts(self, number: int) -> list["Message"]:
        """All messages of a repeated field."""
        return [Message(content) for content in self.values.get(number, [])]

    def text(self, number: int) -> str:
        """A text in a field; empty when the field is absent."""
        return self.values.get(number, [b""])[-1].decode()


def varint(content: bytes, position: int) -> tuple[int, int]:
    """A number of variable length, and the position behind it."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
