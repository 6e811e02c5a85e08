"""Writes tables from the code: fields, options, imports, what stays unchanged, what to expect.

    python docs/tables.py

A test compares the pages with what this program would write.
"""

import ast
import re
import sys
from dataclasses import MISSING, fields
from itertools import groupby
from pathlib import Path
from runpy import run_path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # this tree, whatever is installed
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.command_line import option_of
from vanilla_transformer.commands.translation import Options as CommandOptions
from vanilla_transformer.inference.options import NAMES, TranslateOptions
from vanilla_transformer.language_tags import language_name
from vanilla_transformer.options import GenerationOptions
from vanilla_transformer.run.architecture_options import ArchitectureArguments, field_descriptions
from vanilla_transformer.run.arguments import TOPICS
from vanilla_transformer.run.defaults import CHOSEN_NAMES
from vanilla_transformer.run.expectations import REACHED
from vanilla_transformer.serving.generation_routes import GenerateFields
from vanilla_transformer.serving.libretranslate import TranslateFields
from vanilla_transformer.text.patterns import PATTERNS

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "vanilla_transformer"
END = "<!-- table: end -->\n"


def fields_table() -> str:
    """Makes the table of the config's fields, with one row for fields of one description."""
    lines = ["| field | default | meaning and source |", "|---|---|---|"]
    values = default_values(VanillaTransformerConfig)
    for text, entries in groupby(field_descriptions().items(), key=lambda entry: entry[1]):
        names = [name for name, _ in entries]
        defaults = [code(values[name]) for name in names]
        shown = defaults[:1] if len(set(defaults)) == 1 else defaults
        cells = ", ".join(map(code_name, names)), ", ".join(shown), code_spans(text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def options_table() -> str:
    """Makes the table of the options that this package adds to those of config and Trainer."""
    lines = ["| option, default | meaning |", "|---|---|"]
    for topic in TOPICS:
        if topic is ArchitectureArguments:
            continue
        values = default_values(topic)
        for field in fields(topic):
            if field.name in topic.__annotations__:
                option = code_name(option_of(field.name))
                if field.name in CHOSEN_NAMES:
                    option += ", chosen"
                elif values[field.name] is not None:
                    option += f", {code(values[field.name])}"
                lines.append(f"| {option} | {code_spans(field.metadata['help'])} |")
    return "\n".join(lines) + "\n"


def kept_table() -> str:
    """Makes the table of what stays unchanged in translations."""
    head = "| kind | is kept | is read as prose | in an output, if the source has none |"
    lines = [head, "|---|---|---|---|"]
    for row in PATTERNS:
        cells = [code_name(text).replace("|", r"\|") for text in (row.examples, row.lookalikes)]
        removed = "is taken out" if row.is_unambiguous else ""
        lines.append(f"| {row.kind} | {' | '.join(cells)} | {removed} |")
    return "\n".join(lines) + "\n"


def expectations_table() -> str:
    """Makes the table of what trainings have reached: chrF, BLEU, and chrF of the sources."""
    trainings = sorted({(row.minutes, row.pairs) for row in REACHED})
    heads = [f"{minutes} minutes, {pairs:,} pairs" for minutes, pairs in trainings]
    lines = [
        f"| from English to | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for language, rows in groupby(REACHED, key=lambda row: row.target_language):
        found = {(row.minutes, row.pairs): row for row in rows}
        cells = [
            f"**{row.chrf}**, {row.bleu}; {row.copied_chrf}" if (row := found.get(key)) else ""
            for key in trainings
        ]
        lines.append(f"| {language_name(language)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def imports_table() -> str:
    """Makes the table of the subpackages: what each holds and may import."""
    lines = ["| subpackage | content | imports |", "|---|---|---|"]
    rows = run_path(str(DOCS.parent / "tests/helpers/room_imports.py"))
    folders = [name for name in rows["IMPORTS"] if (PACKAGE / name).is_dir()]
    for name in folders:
        content = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text("utf-8")))
        below = ", ".join(code_name(used) for used in rows["IMPORTS"][name] if used in folders)
        link = f"[{code_name(f'{name}/')}](api/{name}.md)"
        lines.append(f"| {link} | {code_spans(content.splitlines()[0])} | {below} |")
    return "\n".join(lines) + "\n"


def doors_table() -> str:
    """Makes the table of the options of a request, by their names at each door."""
    lines = [
        "| Python | command | `/translate` | `/v1/generate` |",
        "|---|---|---|---|",
    ]
    hidden = CommandOptions.__dataclass_fields__["request"].metadata["without"]
    search = {declared.name for declared in fields(GenerationOptions)}
    for declared in fields(TranslateOptions):
        name = declared.name
        if name in search:
            continue
        of_server = NAMES["/translate"].get(name, name)
        cells = [
            code_name(NAMES["Python"].get(name, name)),
            "" if name in hidden else code_name(declared.metadata.get("flag", option_of(name))),
            code_name(of_server) if of_server in TranslateFields.model_fields else "",
            code_name(name) if name in GenerateFields.model_fields else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def default_values(dataclass: Any) -> dict[str, Any]:
    """Returns the defaults of the fields of a dataclass that have one."""
    return {
        field.name: field.default_factory() if field.default is MISSING else field.default
        for field in fields(dataclass)
        if (field.default, field.default_factory) != (MISSING, MISSING)
    }


def code_name(name: str) -> str:
    """Returns a name as Markdown shows code."""
    return f"`{name}`"


def code(value: Any) -> str:
    """Returns a value as Markdown shows code."""
    return code_name(repr(value).replace("'", '"'))


def code_spans(text: str) -> str:
    """Marks quoted values as code, escapes what Markdown would read in a table, cuts long lists."""
    text = re.sub(r"((?:\w+, ){3}\w+)(?:, \w+){8,}", r"\1 and others (`train --help-all`)", text)
    text = re.sub(r'(?<!`)("[\w.]+")(?!`)', r"`\1`", text)
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([*_|<])", r"\\\1", piece) for piece in pieces[::2]]
    pieces[1::2] = [piece.replace("|", r"\|") for piece in pieces[1::2]]
    return "`".join(pieces)


def updated_page(page: str, name: str, table: str) -> str:
    """Replaces the table between its two markers in a page."""
    begin = f"<!-- table: {name} -->\n"
    before, rest = page.split(begin)
    after = rest.split(END, 1)[1]
    return before + begin + table + END + after


TABLES = {
    "doors": ("translating.md", doors_table),
    "expectations": ("sizing.md", expectations_table),
    "fields": ("config.md", fields_table),
    "imports": ("tour.md", imports_table),
    "kept parts": ("translating.md", kept_table),
    "options": ("sizing.md", options_table),
}
"""The page of each table, and its maker."""

if __name__ == "__main__":
    for name, (file, make_table) in TABLES.items():
        page = (DOCS / file).read_text(encoding="utf-8")
        (DOCS / file).write_text(updated_page(page, name, make_table()), encoding="utf-8")
