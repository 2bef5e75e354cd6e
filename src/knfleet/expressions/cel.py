"""CEL, the Common Expression Language, in which users write conditions on objects.

An `Environment` says which variables and functions there are, and compiles; a `Program` evaluates.
Both come from users who may be careless or hostile: an expression has a limited length and depth,
an evaluation limited iterations, and one that might take too much time or memory for the values
at hand is refused before it begins (`cel_cost`).

The library behind it is imported when the first expression is compiled; nothing of it is seen
outside of this module.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from knfleet.expressions import cel_syntax
from knfleet.expressions.cel_cost import IN_PLACE, Size, affordable

if TYPE_CHECKING:
    from cel_expr_python import cel as library

Kind = Literal["any", "null", "bool", "int", "double", "string", "list", "map"]
CONCRETE: tuple[Kind, ...] = ("null", "bool", "int", "double", "string", "list", "map")

CODES = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$| \(in container ''\)")
PLACE = re.compile(r"ERROR: <input>:(?:-1:-1: |(\d+:\d+: ))")
"""Line and column of an error, unless it is about the expression as a whole."""
LONGEST = 16_384
"""Characters of an expression, at most."""
CACHED = 1_024
"""Compiled expressions that an environment keeps."""


class CelError(ValueError):
    """Something about an expression, in words for its author."""


class CompileError(CelError):
    """The expression cannot be compiled; no input makes it work."""


class EvaluationError(CelError):
    """The expression has no value for this input."""


class BudgetExceeded(EvaluationError):
    """The evaluation would take too much time or memory for this input."""


class Function(Struct, frozen=True):
    """A function that expressions can call."""

    name: str
    parameters: tuple[Kind, ...]
    """With `member`, the first is what the function is called on."""
    result: Kind
    call: Callable[..., Any]
    member: bool = False
    size: Size | None = None
    """How large its result is at most; by default, in proportion to its arguments."""


class Values:
    """The values of an environment's variables, for any number of programs."""

    def __init__(self, environment: "library.Env", given: Mapping[str, Any]) -> None:
        self.environment = environment
        self.given = dict(given)
        longest = float(most_items(given))
        self.size = Size(float(len(msgspec.json.encode(given))), longest, longest)
        self.prepared: library.Activation | None = None

    def activation(self) -> "library.Activation":
        """The values as the library has them; to convert them costs more than most expressions."""
        if self.prepared is None:
            self.prepared = self.environment.Activation(self.given)
        return self.prepared

    def release(self) -> None:
        """Free what an evaluation built, which the library keeps as long as the values."""
        self.prepared = None


class Program:
    """A compiled expression."""

    def __init__(
        self,
        expression: str,
        compiled: "library.Expression",
        environment: "Environment",
    ) -> None:
        self.expression = expression
        self.compiled = compiled
        self.environment = environment
        self.tree = cel_syntax.tree(compiled.serialize())
        self.functions = cel_syntax.functions(self.tree)
        """Names of the functions and operators that the expression calls."""
        self.builds = not self.functions <= IN_PLACE
        """Whether an evaluation builds texts, lists or maps."""
        self.affordable: dict[tuple[int, int], bool] = {}

    @property
    def may_be_true(self) -> bool:
        """Whether the value can be a boolean at all."""
        return self.compiled.return_type().name().lower() in ("bool", "dyn")

    def evaluate(self, values: Values) -> Any:
        """The value of the expression as a plain value; raises EvaluationError."""
        if not self.can_afford(values.size):
            raise BudgetExceeded(
                "the expression could take too much time or memory for a value of"
                f" {values.size.bytes:.0f} bytes; simplify it"
            )
        try:
            result = self.compiled.eval(values.activation())
            value = result.plain_value()
        except RuntimeError as error:
            text = without_code(str(error))
            if "budget exceeded" in text:
                raise BudgetExceeded("the expression needs too many iterations") from error
            raise EvaluationError(text) from error
        except TypeError as error:
            raise EvaluationError("the value of the expression is of no ordinary type") from error
        finally:
            if self.builds:
                values.release()
        if result.type() == self.environment.error_type:
            raise EvaluationError(without_code(str(value)))
        return value

    def is_true(self, values: Values) -> bool:
        """The value of a condition; raises EvaluationError, also when it is not a boolean."""
        value = self.evaluate(values)
        if not isinstance(value, bool):
            raise EvaluationError("the value of the expression is not true or false")
        return value

    def can_afford(self, size: Size) -> bool:
        """Whether values of a size are small enough; powers of two are computed once."""
        rounded = (int(size.bytes).bit_length(), int(size.longest).bit_length())
        if rounded not in self.affordable:
            longest = float(1 << rounded[1])
            largest = Size(float(1 << rounded[0]), longest, longest)
            self.affordable[rounded] = affordable(self.tree, largest, self.environment.sizes)
        return self.affordable[rounded]


class Environment:
    """Variables and functions for expressions, and the expressions compiled with them."""

    def __init__(
        self,
        variables: Mapping[str, Kind],
        functions: Sequence[Function] = (),
        cached: int = CACHED,
    ) -> None:
        self.variables = dict(variables)
        self.functions = list(functions)
        self.sizes = {each.name: each.size for each in functions if each.size is not None}
        self.cached = cached
        self.programs: OrderedDict[str, Program] = OrderedDict()
        self.made: library.Env | None = None
        self.error_type: library.Type | None = None

    def compile(self, expression: str) -> Program:
        """The program of an expression; raises CompileError."""
        if (known := self.programs.get(expression)) is not None:
            self.programs.move_to_end(expression)
            return known
        if len(expression) > LONGEST:
            raise CompileError(f"the expression has more than {LONGEST} characters")
        environment = self.library_environment()
        try:
            compiled = environment.compile(expression)
        except (RuntimeError, UnicodeError) as error:
            raise CompileError(without_code(str(error))) from error
        program = self.programs[expression] = Program(expression, compiled, self)
        if len(self.programs) > self.cached:
            self.programs.popitem(last=False)
        return program

    def condition(self, expression: str) -> Program:
        """The program of an expression that must be true or false; raises CompileError."""
        program = self.compile(expression)
        if not program.may_be_true:
            kind = program.compiled.return_type().name().lower()
            raise CompileError(f"the value of the expression is a {kind}, not true or false")
        return program

    def values(self, given: Mapping[str, Any]) -> Values:
        """Values for the variables: manifests, and what JSON knows besides."""
        return Values(self.library_environment(), given)

    def library_environment(self) -> "library.Env":
        """The library's environment, made when it is first needed."""
        if self.made is None:
            from cel_expr_python import cel as library
            from cel_expr_python.ext import ext_optional, ext_strings

            kinds = library_kinds()
            self.error_type = library.Type.ERROR
            self.made = library.NewEnv(
                variables={name: kinds[kind] for name, kind in self.variables.items()},
                functions=declarations(self.functions, kinds),
                extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
            )
        return self.made


def library_kinds() -> "dict[Kind, library.Type]":
    """The library's types."""
    from cel_expr_python import cel as library

    types = library.Type
    return {
        "any": types.DYN,
        "null": types.NULL,
        "bool": types.BOOL,
        "int": types.INT,
        "double": types.DOUBLE,
        "string": types.STRING,
        "list": types.List(types.DYN),
        "map": types.Map(types.STRING, types.DYN),
    }


def declarations(
    functions: Sequence[Function], kinds: "Mapping[Kind, library.Type]"
) -> "list[library.FunctionDecl]":
    """Functions as the library wants them: all overloads of a name together."""
    from cel_expr_python import cel as library

    overloads: dict[str, list[library.Overload]] = {}
    for each in functions:
        # When it evaluates, the library finds no function by a parameter of any type.
        choices: list[tuple[Kind, ...]] = [
            CONCRETE if kind == "any" else (kind,) for kind in each.parameters
        ]
        for parameters in product(*choices):
            overload = library.Overload(
                f"knfleet_{each.name}_{'_'.join(parameters)}",
                return_type=kinds[each.result],
                parameters=[kinds[kind] for kind in parameters],
                is_member=each.member,
                impl=each.call,
            )
            overloads.setdefault(each.name, []).append(overload)
    return [library.FunctionDecl(name, found) for name, found in overloads.items()]


def most_items(value: Any) -> int:
    """How many elements the largest list or map within a value has."""
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return max((len(table), *map(most_items, table.values())))
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        return max((len(elements), *map(most_items, elements)))
    return 0


def without_code(text: str) -> str:
    """A message of the library without the codes around it."""
    return PLACE.sub(r"\1", CODES.sub("", text)).strip()
