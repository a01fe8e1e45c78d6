"""The laws of the house as functions from source text to complaints, so that each can be shown a lawbreaker."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Room of the house -> floor. A module imports from its own floor or from below.
FLOORS = {
    "errors": 0, "closing": 0, "interrupts": 0, "work_pool": 0, "periodic_work": 0, "failpoints": 0, "clock": 0, "files": 0, "display": 0, "tracebacks": 0, "model": 0, "records": 0, "storage": 0,
    "rpc": 1, "server": 1, "client": 1, "lake": 1,
    "tiering": 2, "read": 2, "lookup": 2, "spark": 2,
    "workbench": 3, "explorer": 3, "jobs": 3, "cli": 3, "testing": 3,
}  # fmt: skip

#: Room -> what it does not know, though the floors would allow it.
STRANGERS = {
    # The coordinator knows the lake only as offsets and snapshot ids; lake tables reach it through an interface handed in.
    "server": ("fluss_lab.lake", "fluss_lab.client"),
    # The client speaks to any lake through its interfaces.
    "client": ("fluss_lab.server", "fluss_lab.lake.iceberg"),
    "lake": ("fluss_lab.server", "fluss_lab.client", "fluss_lab.rpc"),
    "rpc": ("fluss_lab.server", "fluss_lab.client", "fluss_lab.lake"),
}

#: Third party -> the only packages whose modules import it when they run (annotations may name its types).
KEEPERS = {
    "pyspark": ("fluss_lab.spark",),
    "py4j": ("fluss_lab.spark",),
    "pyiceberg": ("fluss_lab.lake.iceberg",),
    # Filters are parsed into pyiceberg's expressions, which need no table.
    "pyiceberg.expressions": ("fluss_lab.lake.iceberg", "fluss_lab.read"),
    "sqlglot": ("fluss_lab.read", "fluss_lab.spark.lookup"),
    # An extra: without it, everything but pictures works.
    "matplotlib": ("fluss_lab.display",),
    # An object store as remote storage; 20 MB that nothing else needs.
    "obstore": ("fluss_lab.storage",),
    "anywidget": ("fluss_lab.explorer",),
    "tornado": ("fluss_lab.explorer.loopback",),
}

#: Calls that make files durable or swap them in; one module may.
DURABLE = {"os.fsync", "os.fdatasync", "os.replace", "os.rename", "os.renames", "shutil.move"}
DURABLE_KEEPER = "fluss_lab.files"

#: Words that are no participle, though they end like one; and participles that do not.
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"}
PARTICIPLES = {
    "begun", "bound", "broken", "built", "chosen", "done", "drawn", "found", "given", "gone", "got", "grown", "held", "hidden",
    "kept", "known", "laid", "left", "lost", "made", "met", "said", "seen", "sent", "shown", "taken", "reported", "written",
}  # fmt: skip
#: Names that are nothing but one of these say neither what is done nor what is returned. (``of`` is the field's word for a
#: constructor from parts, as of Java's lists.)
PREPOSITIONS = {
    "after", "among", "at", "before", "behind", "beside", "between", "by", "for", "from", "in", "on", "over", "to", "under", "until",
    "with", "within",
}  # fmt: skip
#: What gives a name to the time of a block or to a value may be an adjective.
STATE_MARKS = ("contextmanager", "property", "fixture")
#: Names that others decided: a future has them, and a listener of Spark.
OTHERS_NAMES = {"done", "onQueryStarted", "onQueryTerminated"}

#: Code from data.
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {
    "eval", "exec", "compile", "__import__",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load",
    "pandas.read_pickle", "pd.read_pickle",
}  # fmt: skip

#: Who may look at a location's scheme, and what it decides: everything else asks these.
SCHEME_KEEPERS = {
    "fluss_lab.lake.iceberg.files.file_locations": "the lake's files",
    "fluss_lab.lake.iceberg.maintenance.warehouse_relocation": "paths in the files of a warehouse on this machine",
    "fluss_lab.storage.store_location": "remote storage: what a location means",
    "fluss_lab.storage.object_store": "which store is made for a location",
    "fluss_lab.server.coordinator.remote_access": "which store's credentials clients get",
    "fluss_lab.client.cluster.remote_files": "that they are those of the store that was asked for",
    "fluss_lab.workbench.health.disk_usage": "what of the options is a folder here, without pyiceberg being loaded",
    "fluss_lab.spark.sink.table_sink": "a checkpoint's location, which Spark reads",
    "fluss_lab.spark.lookup.batch_points": "a checkpoint's location, which Spark reads",
    "fluss_lab.spark.source.parquet_frame": "who lists files for Spark's own reader",
    "fluss_lab.spark.session.worker_placement": "the address of a Spark master, no file",
    "fluss_lab.testing.parquet_lake.parquet_storage": "another lake format, on file systems only",
    "fluss_lab.testing.readers": "DuckDB opens a metadata file by its path",
    "fluss_lab.testing.conformance.log_tables": "that a split names a location and no path of the driver's",
}
_SCHEME = re.compile(r"(file|s3[an]?|gs|gcs|abfss?|wasbs?|hdfs|oss)(:.*)?")

#: The only room that may import the command line: a library does not.
COMMAND_LINE = "fluss_lab.cli"

FOLDER_MODULES_MAX = 15
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
GENERATED = ("fluss_lab.rpc.fluss_api_pb2",)


@dataclass(frozen=True)
class Import:
    """One name that a module imports: ``from a import b`` is ``a.b``, of which ``b`` may be a module or not."""

    name: str
    line: int
    #: Under ``if TYPE_CHECKING``: read by type checkers, not run.
    typing_only: bool

    def within(self, package: str) -> bool:
        return self.name == package or self.name.startswith(package + ".")


@dataclass(frozen=True)
class Call:
    """One call: of what, as it is written (``os.replace``), and with what."""

    name: str
    line: int
    #: An attribute called with one positional argument and nothing else, as Path.replace(target) is.
    takes_one: bool
    takes_none: bool
    #: With an ``allow_pickle`` that is not False.
    pickles: bool


# Several laws ask for the same: each module is read once.
@functools.cache
def syntax_tree(source: str) -> ast.Module:
    """Return a module's syntax tree, which nobody changes."""
    return ast.parse(source)


@functools.cache
def imports(source: str, module: str, *, package: bool = False) -> list[Import]:
    """Return what a module imports anywhere in it, relative names and literal ``import_module`` calls resolved."""
    found: list[Import] = []

    def visit(node: ast.AST, typing_only: bool) -> None:
        line = getattr(node, "lineno", 0)
        found.extend(Import(name, line, typing_only) for name in _imported(node, module, package))
        guarded = node.body if isinstance(node, ast.If) and _is_typing_guard(node) else []
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only or child in guarded)

    visit(syntax_tree(source), False)
    return found


def _is_typing_guard(node: ast.If) -> bool:
    return _name(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _imported(node: ast.AST, module: str, package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.split(".")
            kept = parts[: len(parts) - node.level + (1 if package else 0)]
            base = ".".join([*kept, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and _name(node.func) in {"import_module", "importlib.import_module"}:
        literals = (each.value for each in node.args[:1] if isinstance(each, ast.Constant))
        yield from (value for value in literals if isinstance(value, str))


def room(name: str) -> str:
    """Return the room that a dotted name lies in; empty for the face itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor_complaints(source: str, module: str) -> list[str]:
    """No import goes up, and none goes through the face (``fluss_lab`` itself), which stands above all floors."""
    if module == "fluss_lab":
        return []
    if room(module) not in FLOORS:
        return [f"{module}: {room(module)!r} is no room of the house"]
    floor = FLOORS[room(module)]
    complaints = []
    for each in imports(source, module):
        if not each.within("fluss_lab"):
            continue
        theirs = FLOORS.get(room(each.name))
        if theirs is None:
            complaints.append(f"{module}:{each.line} imports {each.name}, which is the face or no room of the house")
        elif theirs > floor:
            complaints.append(f"{module}:{each.line} (floor {floor}) imports {each.name} (floor {theirs})")
    return complaints


def stranger_complaints(source: str, module: str) -> list[str]:
    """Rooms that must not know each other do not."""
    return [
        f"{module}:{each.line} imports {each.name}: {room(module)} does not know {stranger}"
        for each in imports(source, module)
        for stranger in STRANGERS.get(room(module), ())
        if each.within(stranger)
    ]


def keeper_complaints(source: str, module: str) -> list[str]:
    """A third party that has a keeper is imported by nobody else."""
    complaints = []
    for each in imports(source, module):
        guarded = max((name for name in KEEPERS if each.within(name)), key=len, default=None)
        if guarded is None or each.typing_only:
            continue
        if not any(module == keeper or module.startswith(keeper + ".") for keeper in KEEPERS[guarded]):
            complaints.append(f"{module}:{each.line} imports {each.name}, which is kept by {KEEPERS[guarded]}")
    return complaints


def durability_complaints(source: str, module: str) -> list[str]:
    """Only one module syncs files or renames them over others."""
    if module == DURABLE_KEEPER:
        return []
    complaints = []
    for call in calls(source):
        # One positional argument: Path.replace(target); str.replace takes two, datetime.replace names its own.
        of_path = call.takes_one and call.name.endswith((".replace", ".rename"))
        if call.name in DURABLE or of_path:
            complaints.append(f"{module}:{call.line} calls {call.name}: {DURABLE_KEEPER} does that")
    complaints += [
        f"{module}:{each.line} imports {each.name}: {DURABLE_KEEPER} does that"
        for each in imports(source, module)
        if each.name in DURABLE
    ]
    return complaints


def safety_complaints(source: str, module: str) -> list[str]:
    """Nothing turns data into code."""
    complaints = [
        f"{module}:{each.line} imports {each.name}"
        for each in imports(source, module)
        if each.name.split(".")[0] in UNSAFE_MODULES or each.name in UNSAFE_CALLS
    ]
    for call in calls(source):
        if call.name in UNSAFE_CALLS or call.pickles:
            how = " with allow_pickle" if call.pickles else ""
            complaints.append(f"{module}:{call.line} calls {call.name}{how}")
    return complaints


def scheme_complaints(source: str, module: str) -> list[str]:
    """Whether files lie here or in a store is decided in one place, not by a look at the location wherever it matters."""
    if module in SCHEME_KEEPERS:
        return []
    return [f"{module}:{line} looks at a location's scheme: see laws.SCHEME_KEEPERS" for line in scheme_lines(source)]


def scheme_lines(source: str) -> list[int]:
    """Return the lines that look at a location's scheme."""
    found = (node for node in ast.walk(syntax_tree(source)) if isinstance(node, ast.expr) and _looks_at_a_scheme(node))
    return sorted({node.lineno for node in found})


def _looks_at_a_scheme(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "scheme"
    if isinstance(node, ast.Attribute):
        return node.attr in {"scheme", "parse_location"}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in {"startswith", "removeprefix", "partition"}:
            return False
        given = [each for value in node.args for each in (value.elts if isinstance(value, ast.Tuple) else [value])]
        return any(_is_scheme(each) for each in given)
    return False


def _is_scheme(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _SCHEME.fullmatch(node.value) is not None


def size_complaints(source: str, module: str) -> list[str]:
    """Modules and functions can be read in one go."""
    if module in GENERATED:
        return []
    complaints = []
    if (lines := len(source.splitlines())) > MODULE_LINES_MAX:
        complaints.append(f"{module} has {lines} lines, more than {MODULE_LINES_MAX}")
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                complaints.append(
                    f"{module}:{node.lineno} {node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"
                )
    return complaints


def name_complaints(source: str, module: str) -> list[str]:
    """A function is named by a verb or by what it returns: not by a participle, with a preposition or alone, or a preposition."""
    if module in GENERATED:
        return []
    return [
        f"{module}:{node.lineno} {node.name}: expected a verb or what it returns, found "
        f"{'a participle' if _is_participle(node.name.strip('_').split('_')[0]) else 'a preposition'}"
        for node in ast.walk(syntax_tree(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _says_neither_deed_nor_result(node)
    ]


def _says_neither_deed_nor_result(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = [ast.unparse(each) for each in node.decorator_list]
    if node.name in OTHERS_NAMES or any(mark in each for each in marks for mark in STATE_MARKS):
        return False
    first, *rest = node.name.strip("_").split("_")
    if not rest:
        return first in PREPOSITIONS or _is_participle(first)
    return _is_participle(first) and rest in ([each] for each in (*PREPOSITIONS, "of"))


def _is_participle(word: str) -> bool:
    return word in PARTICIPLES or (word.endswith("ed") and len(word) > 3 and word not in NO_PARTICIPLES)


def command_line_complaints(source: str, module: str) -> list[str]:
    """Nobody but the command line itself imports it."""
    if module == COMMAND_LINE or module.startswith(COMMAND_LINE + "."):
        return []
    return [
        f"{module}:{each.line} imports {each.name}: a library does not know its command line"
        for each in imports(source, module)
        if each.within(COMMAND_LINE)
    ]


def folder_complaints(found: list[tuple[str, str, bool]]) -> list[str]:
    """A folder has few modules, and no two modules have one name."""
    names = [module for module, _, package in found if not package]
    folders = Counter(name.rpartition(".")[0] for name in names)
    complaints = [
        f"{folder} has {count} modules, more than {FOLDER_MODULES_MAX}"
        for folder, count in folders.items()
        if count > FOLDER_MODULES_MAX
    ]
    basenames = Counter(name.rpartition(".")[2] for name in names if not name.endswith(".__main__"))
    return complaints + [f"{count} modules are called {name}" for name, count in basenames.items() if count > 1]


def circle_complaints(found: list[tuple[str, str, bool]]) -> list[str]:
    """No module imports itself by way of others: neither when it runs, nor in a function, nor for a type checker."""
    known = {module for module, _, _ in found}
    graph = {
        module: {_module_of(each.name, known) for each in imports(source, module, package=package)} - {module, ""}
        for module, source, package in found
    }
    complaints = []
    while leaves := [module for module, theirs in graph.items() if not theirs & graph.keys()]:
        for module in leaves:
            del graph[module]
    # What is left imports, or is imported by, a circle: those that nobody left imports are not part of one.
    while roots := [module for module in graph if not any(module in theirs for theirs in graph.values())]:
        for module in roots:
            del graph[module]
    for module, theirs in sorted(graph.items()):
        complaints.append(f"{module} is part of an import circle, by way of {', '.join(sorted(theirs & graph.keys()))}")
    return complaints


def _module_of(name: str, known: set[str]) -> str:
    """Return the module that a dotted name lies in; empty for what is not of the house, and for the face."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return "" if name == "fluss_lab" else name


def init_complaints(source: str, module: str) -> list[str]:
    """An ``__init__`` holds a docstring, imports and a sorted ``__all__``; the face also its lazy loading."""
    tree = syntax_tree(source)
    complaints = [] if ast.get_docstring(tree) else [f"{module}: no docstring"]
    listed: list[str] | None = None
    names = 0
    for node in tree.body[1 if ast.get_docstring(tree) else 0 :]:
        if _is_import(node):
            names += not isinstance(node, ast.ImportFrom) or node.module != "__future__"
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
        elif not (module == "fluss_lab" and _is_lazy_loading(node)):
            complaints.append(f"{module}:{node.lineno} is neither import nor __all__")
    if names and listed is None:
        complaints.append(f"{module}: imports without __all__")
    if listed is not None and listed != sorted(listed, key=_export_order):
        complaints.append(f"{module}: __all__ is not sorted (constants, classes, functions)")
    return complaints


def _is_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.If) and _is_typing_guard(node):
        return all(_is_import(child) for child in [*node.body, *node.orelse])
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_lazy_loading(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in {"__getattr__", "__dir__"}
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict)


def _export_order(name: str) -> tuple[int, str]:
    """Order as ruff's RUF022 does."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


def sleep_complaints(source: str, module: str) -> list[str]:
    """Tests wait for what they wait for, with a deadline, or move a clock; they do not sleep and hope."""
    complaints = [f"{module}:{call.line} sleeps" for call in calls(source) if call.name == "time.sleep"]
    complaints += [f"{module}:{each.line} sleeps" for each in imports(source, module) if each.name == "time.sleep"]
    return complaints


def chance_complaints(source: str, module: str) -> list[str]:
    """What tests draw comes from the fixtures ``seed`` and ``rng``: the same tree, the same verdict."""
    arguments = {node.arg for node in ast.walk(syntax_tree(source)) if isinstance(node, ast.arg)}
    shared = "random" not in arguments and any(each.name == "random" for each in imports(source, module))
    return [
        f"{module}:{call.line} draws from {call.name}, which has no seed: take the fixture seed or rng"
        for call in calls(source)
        if call.name in {"os.urandom", "random.SystemRandom"}
        or (call.takes_none and call.name in {"random.Random", "np.random.default_rng"})
        or (shared and call.name.startswith("random.") and call.name[7:].islower())
    ]


@functools.cache
def calls(source: str) -> list[Call]:
    """Return every call in a module."""
    found = (node for node in ast.walk(syntax_tree(source)) if isinstance(node, ast.Call))
    return [
        Call(
            _name(node.func),
            node.lineno,
            isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords,
            not node.args and not node.keywords,
            any(word.arg == "allow_pickle" and ast.unparse(word.value) != "False" for word in node.keywords),
        )
        for node in found
    ]


def _name(node: ast.expr) -> str:
    """Return a dotted name as it is written; of an attribute of anything else ``?`` and the attribute."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_name(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


@functools.cache
def modules(folder: str) -> list[tuple[str, str, bool]]:
    """Return (dotted name, source, whether it is a package's ``__init__``) of every module under a folder of the root."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = parts[-1] == "__init__"
        found.append((".".join(parts[:-1] if package else parts), path.read_text(encoding="utf-8"), package))
    return found
