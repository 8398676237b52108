"""What is made when the site is built: the command line, the fields of the documents, and links to what the site lacks.

Three directives write Markdown, which is then read like any other page:

    :::{command-line}            the help of every command
    :::{http-api}                every endpoint of the service
    :::{json-schema} snapshot    a table for each object of a document, from its JSON Schema

Links to files outside docs/ lead somewhere on a code host. The site has no such files: there they become the name of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import typer.main
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from allocator.cli.main import app
from allocator.service.openapi import openapi
from allocator.service.settings import Settings
from allocator.whatif.scenario_doc import scenario_schema
from allocator.wire import decision_schema, snapshot_schema, trace_schema

HELP_WIDTH = 96
"""Columns of the help texts."""

SCHEMAS = {
    "snapshot": snapshot_schema,
    "decision": decision_schema,
    "trace": trace_schema,
    "scenario": scenario_schema,
}


class MarkdownDirective(SphinxDirective):
    """A directive that stands for lines of Markdown."""

    def lines(self) -> Iterator[str]:
        """The lines."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Read the lines as if they stood in the page."""
        holder = nodes.Element()
        text = list(self.lines())
        block = StringList(text, [self.env.docname] * len(text))
        self.state.nested_parse(block, self.content_offset, holder, match_titles=True)
        return holder.children


# --- command line ----------------------------------------------------------------------------------------------------------


class CommandLine(MarkdownDirective):
    """The help of every command."""

    def lines(self) -> Iterator[str]:
        """One section for each command."""
        yield from command_lines()


def command_lines() -> Iterator[str]:
    """The whole command line as Markdown."""
    yield from _command(typer.main.get_command(app), "allocator")


def _command(command: Any, name: str) -> Iterator[str]:
    """A section with the help of a command, and those of its own commands after it."""
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=HELP_WIDTH)
    yield from [f"## {name}", "", "```text", *command.get_help(context).rstrip().splitlines(), "```", ""]
    for child in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _command(command.get_command(context, child), f"{name} {child}")


# --- documents -------------------------------------------------------------------------------------------------------------


class JsonSchema(MarkdownDirective):
    """A table for each object of a document."""

    required_arguments: ClassVar[int] = 1

    def lines(self) -> Iterator[str]:
        """One section for each object."""
        yield from schema_lines(self.arguments[0])


def schema_lines(document: str) -> Iterator[str]:
    """The objects of a document as Markdown, the document itself first, then in the order in which they are met."""
    schema = SCHEMAS[document]()
    yield from _object(document, document.capitalize(), schema)
    for name in _met(schema):
        definition = schema["$defs"][name]
        if "properties" in definition:
            yield from _object(document, name, definition)


def _met(schema: Mapping[str, Any]) -> list[str]:
    """The names of the definitions in the order in which a reader of the schema meets them."""
    found: list[str] = []
    queue = [{key: value for key, value in schema.items() if key != "$defs"}]
    while queue:
        for name in re.findall(r"#/\$defs/(\w+)", repr(queue.pop(0))):
            if name not in found:
                found.append(name)
                queue.append(schema["$defs"][name])
    return found


def _object(document: str, name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    yield f"({anchor(document, name)})="
    yield f"### {name}"
    yield ""
    yield schema.get("description", "")
    yield ""
    yield from ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for field, value in schema["properties"].items():
        default = "required" if field in required else _default(value)
        yield f"| `{field}` | {_cell(_type(document, value))} | {default} | {_cell(_meaning(value))} |"
    yield ""


def anchor(document: str, name: str) -> str:
    """Where the table of an object stands."""
    return f"{document}-{name.lower()}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    if default is None or default in ({}, [], ()):
        return "absent"
    return f"`{default}`" if not isinstance(default, bool) else f"`{str(default).lower()}`"


def _meaning(value: Mapping[str, Any]) -> str:
    parts = (part["description"] for part in value.get("anyOf", ()) if "description" in part)
    return str(value.get("description") or next(parts, ""))


def _type(document: str, value: Mapping[str, Any]) -> str:
    """A type in words: integer, list of Node, "up" or "drain"."""
    if "anyOf" in value:
        return " or ".join(_type(document, part) for part in value["anyOf"])
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        known = SCHEMAS[document]()["$defs"][name]
        return f"[{name}](#{anchor(document, name)})" if "properties" in known else _type(document, known)
    if "enum" in value:
        return " or ".join(f"`{item}`" for item in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = str(value.get("type", "any"))
    if kind == "array":
        return f"list of {_type(document, value.get('items', {}))}"
    if kind == "object":
        return f"object: name to {_type(document, value.get('additionalProperties') or {})}"
    return kind + _range(value)


def _range(value: Mapping[str, Any]) -> str:
    least = value.get("minimum", value.get("exclusiveMinimum"))
    if least is None or abs(least) > 1e12:
        return ""
    return f" above {least}" if "exclusiveMinimum" in value else f" from {least}"


# --- service ---------------------------------------------------------------------------------------------------------------


class HttpApi(MarkdownDirective):
    """A section for each endpoint."""

    def lines(self) -> Iterator[str]:
        """The endpoints in the order of the OpenAPI document."""
        yield from api_lines()


def api_lines() -> Iterator[str]:
    """The OpenAPI document of a service with the default limits as Markdown."""
    document = openapi(Settings(workers=1))
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from [f"## {method.upper()} {path}", "", f"{operation['summary']}. {operation['description']}", ""]
            yield from _parameters(operation.get("parameters", ()))
            yield from _body(operation.get("requestBody"))
            yield from _responses(operation["responses"])


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        f"| `{item['name']}` | {item['in']} | {_range_of(schema)} | {_default(schema)} | {item['description']} |"
        for item, schema in ((item, item["schema"]) for item in parameters)
    ]
    if rows:
        yield from ["| parameter | in | values | default | meaning |", "| --- | --- | --- | --- | --- |", *rows, ""]


def _range_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{item}`" for item in schema["enum"])
    most = f" to {schema['maximum']:,}" if "maximum" in schema else ""
    return f"{schema['type']}{_range(schema)}{most}"


def _body(body: Mapping[str, Any] | None) -> Iterator[str]:
    if body is not None:
        kinds = ", ".join(f"{_named(part['schema'])} as `{kind}`" for kind, part in body["content"].items())
        yield from [f"Body: {kinds}; {body['description']}.", ""]


def _responses(responses: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ["| status | meaning | body | headers |", "| --- | --- | --- | --- |"]
    for status, answer in responses.items():
        kinds = ", ".join(f"{_named(part['schema'])} as `{kind}`" for kind, part in answer["content"].items())
        headers = "; ".join(f"`{name}`: {item['description']}" for name, item in answer.get("headers", {}).items())
        yield f"| {status} | {answer['description']} | {kinds} | {headers} |"
    yield ""


def _named(schema: Mapping[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return name or str(schema["type"])


# --- links -----------------------------------------------------------------------------------------------------------------


def name_files_outside(app: Sphinx, docname: str, source: list[str]) -> None:
    """In the source of a page, replace links that leave the folder of the pages by the text and the name of the file."""
    folder, root = Path(app.srcdir, docname).parent, Path(app.srcdir).resolve()

    def name(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(root):
            return link[0]
        path = target.relative_to(root.parent).as_posix()
        return link[1] if path in link[1] else f"{link[1]} (`{path}` in the source)"

    source[0] = re.sub(r"\[([^\]]+)\]\((\.\./[^)#\s]+)[^)]*\)", name, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directives and of the links."""
    app.connect("source-read", name_files_outside)
    app.add_directive("command-line", CommandLine)
    app.add_directive("json-schema", JsonSchema)
    app.add_directive("http-api", HttpApi)
    return {"parallel_read_safe": True}
