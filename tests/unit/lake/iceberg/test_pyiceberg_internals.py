"""Private names of pyiceberg that the lake uses: each is here, with its signature, and no other is used.

At the next version of pyiceberg: a name that is gone, or takes other arguments, fails here first. Read what became of it in
pyiceberg's source, change the module that uses it, and the line here. `WHY` says what each is for and what would replace it.
"""

import ast
import inspect
from pathlib import Path

import pyiceberg.manifest
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest import response as rest_response
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import visitors
from pyiceberg.io import pyarrow as arrow_io
from pyiceberg.table import update

import fluss_lab

LAKE = Path(fluss_lab.__file__).parent / "lake" / "iceberg"

#: Name -> where it is, its arguments, why it is used and what to do without it.
WHY = {
    "_InclusiveMetricsEvaluator": (
        visitors, ("schema", "expr", "case_sensitive", "include_empty_files"),
        "prunes files by metrics; without it, `Table.scan(...).plan_files()` has the same rules, over a whole snapshot",
    ),
    "_apply_table_update": (
        update, ("update", "base_metadata", "context"),
        "`update_table_metadata` without its deep copy, whose cost grows with the snapshots; use that one instead",
    ),
    "_TableMetadataUpdateContext": (update, (), "as `_apply_table_update`"),
    "_update_table_metadata_log": (
        update, ("base_metadata", "metadata_location", "last_updated_ms"), "as `_apply_table_update`",
    ),
    "_convert_orm_to_iceberg": (
        SqlCatalog, ("self", "orm_table"), "overridden: metadata is parsed once a file; without it, it is parsed at every load",
    ),
    "_update_and_stage_table": (
        SqlCatalog, ("self", "current_table", "table_identifier", "requirements", "updates"),
        "overridden: a commit copies no metadata; without it, commits are slower the more snapshots there are",
    ),
    "_write_metadata": (
        SqlCatalog, ("metadata", "io", "metadata_path"),
        "overridden: metadata is sealed; without it, damage of a metadata file is found by its JSON only",
    ),
    "_check_endpoint": (
        RestCatalog, ("self", "endpoint"),
        "`load_table` of the REST catalog is written anew: metadata of one location is parsed once; without it, at every load",
    ),
    "_split_identifier_for_path": (RestCatalog, ("self", "identifier", "kind"), "as `_check_endpoint`"),
    "_response_to_table": (RestCatalog, ("self", "identifier_tuple", "table_response"), "as `_check_endpoint`"),
    "_handle_non_200_response": (rest_response, ("exc", "error_handler"), "as `_check_endpoint`"),
    "_refresh_token": (RestCatalog, ("self",), "as `_check_endpoint`: a token that ended is renewed, as pyiceberg does"),
    "_session": (None, None, "what the REST catalog asks its server by: as `_check_endpoint`"),
    "_config_headers": (
        RestCatalog, ("self", "session"),
        "overridden, as it comes first: sessions get timeouts and retries; without it, a server that hangs is waited for for ever",
    ),
    "_initialize_fs": (
        arrow_io.PyArrowFileIO, ("self", "scheme", "netloc"),
        "overridden: of S3 a small file is one request; without it, it is three",
    ),
    "_load_file_io": (
        SqlCatalog, ("self", "properties", "location"),
        "overridden: a table's files are opened by one access until its properties change; without it, by a new one at every load",
    ),
    "_parse_metadata_version": (SqlCatalog, ("metadata_location",), "what the overridden methods number files by"),
    "_delete_old_metadata": (
        SqlCatalog, ("io", "base", "metadata"),
        "metadata files go after a commit, as `Transaction` has it; without it, they go as orphans",
    ),
    "_meta": (
        pyiceberg.manifest.ManifestWriterV2, None,
        "the header of manifests and their lists gets the key of the seal; without it, they are not sealed",
    ),
    "_with_partition": (
        pyiceberg.manifest.ManifestWriter, ("self", "format_version"),
        "overridden: equality ids are of the specification's type; needless once pyiceberg writes them so",
    ),
    "_writer": (None, None, "the Avro file of a manifest writer, to gather entries to blocks; without it, blocks are small"),
}  # fmt: skip

#: Attributes of our own classes, and of others, that begin with an underscore beside ``self``.
OWN = {"_fields"}


def used_names() -> dict[str, set[str]]:
    """Return, by private name, the modules of the lake that take it from pyiceberg or from an object not their own."""
    found: dict[str, set[str]] = {}
    for path in sorted(LAKE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        defined |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_set(node)}
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg"):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.Attribute):
                names = [node.attr] if node.attr not in defined or is_super(node.value) else []
            for name in names:
                if name.startswith("_") and not name.startswith("__"):
                    found.setdefault(name, set()).add(path.name)
    return found


def is_set(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


def is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def test_no_other_private_name_is_used():
    used = {name: modules for name, modules in used_names().items() if name not in OWN}
    assert {name: modules for name, modules in used.items() if name not in WHY} == {}
    assert set(WHY) - set(used) <= {"_write_metadata", "_writer", "_config_headers", "_with_partition"}, (
        "overridden, or set: else no longer used"
    )


@pytest.mark.parametrize("name", [name for name, (place, _, _) in WHY.items() if place is not None])
def test_a_name_is_where_it_was_and_takes_what_it_took(name):
    place, arguments, why = WHY[name]
    found = inspect.getattr_static(place, name, None)
    assert found is not None, why
    if arguments is None:
        return
    found = getattr(place, name)
    assert tuple(inspect.signature(found).parameters) == arguments, why


def test_a_manifest_writer_has_its_file_and_its_header():
    writer = pyiceberg.manifest.ManifestWriterV2
    assert isinstance(inspect.getattr_static(writer, "_meta"), property)
    assert "_writer" in inspect.getsource(pyiceberg.manifest.ManifestWriter.__enter__)
    assert "_meta" in inspect.getsource(pyiceberg.manifest.ManifestListWriter.__init__)
