"""Small changes to a module that its tests should notice: comparisons, signs, terms, constants, checks, calls."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
_PAIRS = (
    ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("any", "all"), ("sum", "mean"), ("zeros", "ones"),
    ("floor", "ceil"), ("log2", "log"),
)  # fmt: skip
_TWINS = dict(_PAIRS) | {b: a for a, b in _PAIRS}
_DROPPED = {"sqrt", "square", "abs", "clamp", "clamp_min", "clamp_max", "log", "exp", "diagonal", "triu", "tril"}
_CHATTING = {"print", "info", "debug", "add_argument"}
_SPEAKING = _CHATTING | {"warn", "warning"}


@dataclass(frozen=True)
class Mutation:
    """One change: where (`Class.function`), the line before and after, and the whole source after."""

    where: str
    before: str
    after: str
    source: str

    @property
    def key(self) -> str:
        """What it does, whatever the line's number; a function's second line of the same text says so."""
        return f"{self.where}: {self.before} => {self.after}"

    def chance(self, seed: int) -> float:
        """A number in 0..1 that depends on the seed and the change alone, so that edits elsewhere draw no others."""
        digest = hashlib.sha256(f"{seed}:{self.key}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


def mutations(source: str) -> Iterator[Mutation]:
    """All changes to a module's source, in its order; messages, figures and annotations are left alone."""
    encoded = source.encode()
    starts = [0]
    for line in encoded.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, Mutation] = {}
    for where, parent in _walk(ast.parse(source), "module"):
        for node, text in _alternatives(parent):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            first, last = starts[node.lineno - 1], starts[node.end_lineno or 0]
            changed = encoded[:start] + text.encode() + encoded[end:]
            before = _one_line(encoded[first:last])
            after = _one_line(encoded[first:start] + text.encode() + encoded[end:last])
            found.setdefault(f"{where}:{node.lineno}:{after}", Mutation(where, before, after, changed.decode()))
    alike: Counter[str] = Counter()
    for change in found.values():
        alike[change.key] += 1
        yield change if alike[change.key] == 1 else replace(change, where=f"{change.where} ({alike[change.key]})")


def _one_line(code: bytes) -> str:
    return " ".join(code.decode().split())


def _walk(node: ast.AST, where: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Statements and expressions that compute something, each with the function that it stands in."""
    if isinstance(node, ast.expr | ast.stmt):
        yield where, node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where = node.name if where == "module" else f"{where}.{node.name}"
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _speaks(node) or _draws(node):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, where)


def _speaks(node: ast.AST) -> bool:
    """Whether it is a call that tells the user something: its wording is no behaviour."""
    return isinstance(node, ast.Call) and _name(node.func) in _SPEAKING


def _draws(node: ast.AST) -> bool:
    """Whether it is a function that makes a figure, which people look at."""
    return isinstance(node, ast.FunctionDef) and bool({"draw", "figure", "panel"} & set(node.name.split("_")))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _alternatives(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What may stand in the place of a node, or of the condition in front of a refusal."""
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue):
        yield node.test, "False"
    for other in _statements(node) if isinstance(node, ast.stmt) else _expressions(node):
        text = other if isinstance(other, str) else ast.unparse(other)
        loose = isinstance(other, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr | ast.Compare | ast.BinOp)
        yield node, f"({text})" if loose and type(other) is not type(node) else text


def _statements(node: ast.stmt) -> Iterator[str | ast.AST]:
    match node:
        case ast.Expr(value=ast.Call(func=function)) if _name(function) not in _CHATTING:
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.AugAssign(target=target, op=op, value=value):
            yield "pass"
            if type(op) in _ARITHMETIC:
                yield ast.AugAssign(target, _ARITHMETIC[type(op)](), value)


def _expressions(node: ast.expr) -> Iterator[str | ast.AST]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in _COMPARISONS[type(op)]:
                yield ast.Compare(left, [other()], [right])
        case ast.Compare(left=left, ops=[first, *others], comparators=rights):
            yield ast.Compare(left, [_COMPARISONS[type(first)][0](), *others], rights)
        case ast.BoolOp(op=op, values=[first, *others]):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), [first, *others])
            yield first
            yield others[-1]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            other = ast.BinOp(left, _ARITHMETIC[type(op)](), right)
            yield f"({ast.unparse(other)})" if isinstance(op, ast.Pow) else other
            yield left
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.Constant(value=float() as value):
            yield repr(value * 10 if value else 1.0)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step), ctx=ctx):
            yield from _slices(value, lower, upper, step, ctx)
        case ast.Call():
            yield from _calls(node)
        case ast.Attribute(value=value, attr="T" | "mT"):
            yield value


def _slices(
    value: ast.expr, lower: ast.expr | None, upper: ast.expr | None, step: ast.expr | None, ctx: ast.expr_context
) -> Iterator[ast.AST]:
    one = ast.Constant(1)
    if lower is not None and not isinstance(lower, ast.Constant):
        yield ast.Subscript(value, ast.Slice(ast.BinOp(lower, ast.Add(), one), upper, step), ctx)
    if upper is not None and not isinstance(upper, ast.Constant):
        yield ast.Subscript(value, ast.Slice(lower, ast.BinOp(upper, ast.Sub(), one), step), ctx)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    function, arguments, keywords = node.func, node.args, node.keywords
    if _name(function) in _SPEAKING:
        return
    symmetric = _name(function) in ("min", "max")
    if (
        len(arguments) > 1
        and not symmetric
        and all(isinstance(each, ast.Name | ast.Attribute) for each in arguments[:2])
    ):
        yield ast.Call(function, [arguments[1], arguments[0], *arguments[2:]], keywords)
    twin = _TWINS.get(_name(function))
    if twin and isinstance(function, ast.Attribute):
        yield ast.Call(ast.Attribute(function.value, twin, ast.Load()), arguments, keywords)
    if twin and isinstance(function, ast.Name) and twin in ("min", "max", "any", "all"):
        yield ast.Call(ast.Name(twin, ast.Load()), arguments, keywords)
    if _name(function) in _DROPPED and isinstance(function, ast.Attribute) and not isinstance(function.value, ast.Name):
        yield function.value
