"""Add a consumer to the text of `projections/listing.py`: one import, one entry. Pure, and idempotent."""

import ast
from typing import Final

listing_function: Final = "server_consumers"
"""The function whose returned tuple has an entry for each consumer."""


class ListingUnknown(Exception):
    """The listing is not as this version writes it, so that nothing can be added safely. The message says where."""


def with_consumer(listing: str, name: str, class_name: str) -> str:
    """The listing with the consumer as its last entry; the same text when it has it. Raises ListingUnknown."""
    try:
        tree = ast.parse(listing)
    except SyntaxError as fault:
        raise ListingUnknown(f"line {fault.lineno}: {fault.msg}") from fault
    returned, entries = _entries(tree)
    lines = listing.splitlines()
    entry, statement = f"{class_name}()", f"from projections.{name}.consumer import {class_name}"
    if entry not in entries:
        spelled = lines[returned.lineno - 1 : returned.end_lineno]
        if any("#" in line for line in spelled):
            raise ListingUnknown(f"line {returned.lineno}: a comment among the entries of {listing_function}")
        indent = " " * returned.col_offset
        exploded = [f"{indent}    {each}," for each in (*entries, entry)]
        lines[returned.lineno - 1 : returned.end_lineno] = [f"{indent}return (", *exploded, f"{indent})"]
    if statement not in lines:
        lines.insert(_place_of_import(tree, f"projections.{name}.consumer", class_name), statement)
    return "\n".join(lines) + "\n"


def _entries(tree: ast.Module) -> tuple[ast.Return, list[str]]:
    """The returning statement and its entries as they are spelled."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == listing_function]
    if len(functions) != 1:
        raise ListingUnknown(f"{len(functions)} functions {listing_function} where there should be one")
    returned = functions[0].body[-1]
    if not isinstance(returned, ast.Return) or not isinstance(returned.value, ast.Tuple):
        raise ListingUnknown(f"line {returned.lineno}: {listing_function} does not end by returning a tuple")
    for entry in returned.value.elts:
        if not isinstance(entry, ast.Call) or not isinstance(entry.func, ast.Name):
            raise ListingUnknown(f"line {entry.lineno}: {ast.unparse(entry)} is no call of a consumer's class")
    return returned, [ast.unparse(entry) for entry in returned.value.elts]


def _place_of_import(tree: ast.Module, module: str, class_name: str) -> int:
    """The line before which the import goes, from 0, in the order of the modules' names."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if class_name in {alias.asname or alias.name for alias in node.names}:
            raise ListingUnknown(f"line {node.lineno}: {class_name} comes from {node.module} there")
    if not imports:
        raise ListingUnknown("no import of a consumer, beside which another could stand")
    after = [node for node in imports if (node.module or "") > module]
    return after[0].lineno - 1 if after else imports[-1].end_lineno or imports[-1].lineno
