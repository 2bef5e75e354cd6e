"""An upper bound of what a CEL expression may cost, before it is evaluated.

The CEL library limits the iterations of an evaluation, but not the size of values: chained macros
that double a text each time need few iterations and unlimited memory. So the bound is computed from
the syntax tree, for inputs of a given size; an expression that could exceed the limit is not
evaluated at all.

Every value is bounded by how many bytes it has when it is written out, how many elements it has,
and how many the largest list or map within it has. A macro visits elements that together are not
larger than their list, and what its body does grows at least linearly; so the most expensive case
is one element that is as large as the whole list, and nothing in all others.
"""

from collections.abc import Mapping

from msgspec import Struct

from knfleet.expressions.cel_syntax import (
    CallNode,
    CollectionNode,
    Comprehension,
    ConstantNode,
    Identifier,
    Node,
    Select,
)

MOST_COST = 400_000.0
"""About as many steps, each of some ten nanoseconds."""
MOST_BYTES = float(1 << 22)
"""The largest value that an evaluation may build."""
PER_BYTE = 0.1
"""What looking at one byte costs, in steps."""
PER_COPY = 0.4
"""What copying an element of a list costs, in steps; a macro that builds a list copies it each time
that it adds an element. So the limit of steps also limits this memory, to some 50 MB."""
ELEMENT_BYTES = 16
"""What an element of a list takes beside its content."""


class Size(Struct, frozen=True):
    """How large a value is at most."""

    bytes: float = 0.0
    length: float = 0.0
    """How many elements it has, if it is a list or a map."""
    inner: float = 0.0
    """How many elements the largest list or map within it has."""

    @property
    def longest(self) -> float:
        """How many elements it or anything within it has."""
        return max(self.length, self.inner)

    @property
    def part(self) -> "Size":
        """How large something within it is."""
        return Size(self.bytes, self.inner, self.inner)


class Bound(Struct, frozen=True):
    """How large the value of an expression is at most, and what it costs to get it."""

    size: Size
    cost: float


SCALAR = Size(8.0)
NOTHING = Size()

SCALARS = frozenset(
    {
        *("_&&_", "_||_", "!_", "@not_strictly_false", "_-_", "_*_", "_/_", "_%_", "-_"),
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "size", "matches"),
        *("startsWith", "endsWith", "contains", "indexOf", "lastIndexOf", "int", "uint", "double"),
        *("bool", "type", "timestamp", "duration", "hasValue", "isSorted", "hasConditions"),
        *("semver", "isSemver", "major", "minor", "patch", "compareTo", "isLessThan"),
        *("quantity", "isQuantity", "isGreaterThan", "isInteger", "asInteger", "sign"),
        *("asApproximateFloat", "sub", "getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth"),
        *("getDate", "getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
"""Functions whose result is small, whatever they are given."""
IN_PLACE = SCALARS | {"_?_:_", "_[_]", "_[?_]", "_?._", "orValue", "or", "value", "dyn"}
"""Functions that build no new texts, lists or maps."""


def affordable(root: Node, inputs: Size, results: Mapping[str, Size]) -> bool:
    """Whether an evaluation with inputs of a size certainly stays within the limits.

    `results` has the sizes of what functions return that are not part of CEL.
    """
    try:
        bound = Estimate(inputs, results).of(root, {})
    except TooLarge:
        return False
    return bound.cost <= MOST_COST


class TooLarge(Exception):
    """A value may be larger than the limit."""


class Estimate:
    """Bounds for inputs of a size."""

    def __init__(self, inputs: Size, results: Mapping[str, Size]) -> None:
        self.inputs = inputs
        self.results = results

    def of(self, node: Node, local: Mapping[str, Size]) -> Bound:
        """The bound of a node; `local` has the variables that macros declare."""
        bound = self.unchecked(node, local)
        if bound.size.bytes > max(MOST_BYTES, self.inputs.bytes) or bound.cost > MOST_COST:
            raise TooLarge
        return bound

    def unchecked(self, node: Node, local: Mapping[str, Size]) -> Bound:
        """The bound of a node, whatever it is."""
        match node:
            case ConstantNode():
                return Bound(Size(float(node.size)), 1)
            case Identifier():
                return Bound(local.get(node.name, self.inputs), 1)
            case Select():
                operand = self.of(node.operand, local)
                return Bound(operand.size.part, operand.cost + 1)
            case CollectionNode():
                return self.collection(node, local)
            case CallNode():
                return self.call(node, local)
            case Comprehension():
                return self.comprehension(node, local)

    def collection(self, node: CollectionNode, local: Mapping[str, Size]) -> Bound:
        """The bound of a list or map that is written out."""
        elements = [self.of(each, local) for each in node.elements]
        size = Size(
            sum(each.size.bytes + ELEMENT_BYTES for each in elements),
            float(len(elements)),
            max((each.size.longest for each in elements), default=0.0),
        )
        return Bound(size, 1 + sum(each.cost for each in elements))

    def call(self, node: CallNode, local: Mapping[str, Size]) -> Bound:
        """The bound of a function's result."""
        arguments = [self.of(each, local) for each in node.arguments]
        sizes = [each.size for each in arguments]
        work = PER_BYTE * self.bytes_read(node, sizes)
        cost = 1 + work + sum(each.cost for each in arguments)
        return Bound(self.result(node, sizes), cost)

    def bytes_read(self, node: CallNode, sizes: list[Size]) -> float:
        """How many bytes a function looks at."""
        sizes = sizes or [NOTHING]
        total = sum(size.bytes for size in sizes)
        match node.function:
            case "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_":
                literals = [each.size for each in node.arguments if isinstance(each, ConstantNode)]
                return min(literals) if literals else total
            case "_?_:_" | "_[_]" | "_[?_]" | "_?._" | "_&&_" | "_||_" | "!_" | "orValue" | "or":
                return 0.0
            case "@in":
                return total + sizes[-1].length * sizes[0].bytes
            case "matches":
                # The library searches without backtracking.
                return sizes[0].bytes * (1 + 0.25 * sizes[-1].bytes) + 100 * sizes[-1].bytes
            case "contains" | "indexOf" | "lastIndexOf":
                return sizes[0].bytes * (1 + 0.1 * sizes[-1].bytes)
            case _:
                return total + self.result(node, sizes).bytes

    def result(self, node: CallNode, sizes: list[Size]) -> Size:
        """How large the result of a function is at most."""
        if node.function in self.results:
            return self.results[node.function]
        if node.function in SCALARS:
            return SCALAR
        return RESULTS.get(node.function, proportional)(node, sizes)

    def comprehension(self, node: Comprehension, local: Mapping[str, Size]) -> Bound:
        """The bound of a macro."""
        visited = self.of(node.range, local)
        start = self.of(node.start, local)
        count = visited.size.length

        def body(size: Size) -> tuple[Bound, Bound]:
            seen = {**local, **dict.fromkeys(node.variables, size), node.accumulator: NOTHING}
            return self.of(node.condition, seen), self.of(node.step, seen)

        heavy, light = body(visited.size.part), body(NOTHING)
        once, others = min(count, 1.0), max(count - 1, 0.0)
        accumulated = Size(
            start.size.bytes + once * heavy[1].size.bytes + others * light[1].size.bytes,
            start.size.length + count * heavy[1].size.length,
            max(start.size.inner, heavy[1].size.inner),
        )
        ended = self.of(node.result, {**local, node.accumulator: accumulated})
        cost = visited.cost + start.cost + ended.cost
        cost += once * sum(each.cost for each in heavy)
        cost += others * sum(each.cost for each in light)
        cost += PER_COPY * count * accumulated.length / 2
        return Bound(ended.size, cost)


def largest(_node: CallNode, sizes: list[Size]) -> Size:
    """A result that is one of the arguments."""
    return Size(
        max((size.bytes for size in sizes), default=0.0),
        max((size.length for size in sizes), default=0.0),
        max((size.inner for size in sizes), default=0.0),
    )


def within(_node: CallNode, sizes: list[Size]) -> Size:
    """A result that is a part of the first argument."""
    return sizes[0].part


def together(_node: CallNode, sizes: list[Size]) -> Size:
    """The sum of two texts or lists."""
    left, right = sizes
    inner = max(left.inner, right.inner)
    return Size(left.bytes + right.bytes, left.length + right.length, inner)


def replaced(node: CallNode, sizes: list[Size]) -> Size:
    """A text in which another is replaced wherever it is; an empty one is everywhere."""
    text, _, new, *_ = sizes
    searched = node.arguments[1]
    shortest = searched.size if isinstance(searched, ConstantNode) else 0
    places = text.bytes / shortest if shortest else text.bytes + 1
    return Size(text.bytes + places * new.bytes)


def split(_node: CallNode, sizes: list[Size]) -> Size:
    """A text cut into its characters."""
    return Size(sizes[0].bytes * (1 + ELEMENT_BYTES), sizes[0].bytes + 1)


def joined(_node: CallNode, sizes: list[Size]) -> Size:
    """Texts with others in between."""
    between = sum(each.bytes for each in sizes[1:])
    return Size(sizes[0].bytes + sizes[0].length * between)


def parsed(_node: CallNode, sizes: list[Size]) -> Size:
    """What a JSON text describes."""
    elements = sizes[0].bytes / 2 + 1
    return Size(sizes[0].bytes * (1 + ELEMENT_BYTES / 2), elements, elements)


def proportional(_node: CallNode, sizes: list[Size]) -> Size:
    """A result of any other function; numbers grow when they are formatted."""
    longest = max((size.longest for size in sizes), default=0.0)
    return Size(8 * sum(size.bytes for size in sizes) + 64, longest, longest)


RESULTS = {
    "_+_": together,
    "_?_:_": largest,
    "orValue": largest,
    "or": largest,
    "value": largest,
    "optional.of": largest,
    "dyn": largest,
    "_[_]": within,
    "_[?_]": within,
    "_?._": within,
    "replace": replaced,
    "split": split,
    "join": joined,
    "parseJSON": parsed,
}
"""How large the results of functions are."""
