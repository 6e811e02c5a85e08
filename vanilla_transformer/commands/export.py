"""Writes a saved model in the format of another engine, or of transformers itself."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.browser.runtime import find_runtime
from vanilla_transformer.commands.files import check_output
from vanilla_transformer.commands.options import ModelOptions
from vanilla_transformer.files.atomic_files import (
    check_output_directory,
    replaced_directory,
    replaced_file,
)
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.names import QUANTIZATIONS
from vanilla_transformer.options import REQUIRED, argument, option
from vanilla_transformer.rules import refuse

EXAMPLES = """
vanilla-transformer export --to hf runs/multi30k runs/multi30k-marian
vanilla-transformer export --to ctranslate2 runs/multi30k runs/multi30k-ct2 --quantization int8
vanilla-transformer export --to onnx runs/multi30k runs/multi30k-onnx --quantization int8
vanilla-transformer export --to argos runs/multi30k en_de.argosmodel \\
    --languages en=English de=German
vanilla-transformer export --to browser runs/multi30k site
"""
FORMATS = ("hf", "ctranslate2", "argos", "onnx", "browser")

ONNX_QUANTIZATIONS = ("float32", "float16", "int8")
"""The types of weights of a graph, among `QUANTIZATIONS`."""


def _read_language(text: str) -> tuple[str, str]:
    code, _, name = text.partition("=")
    if not re.fullmatch("[A-Za-z0-9-]+", code) or not name.strip():
        raise ValueError(f"{text!r} is not CODE=NAME, such as en=English")
    return code, name


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """The options of the subcommand."""

    output_dir: str = argument("directory to write", "OUT")
    to: str = option(
        "the format; hf: a class of transformers, which loads without code of this package",
        REQUIRED,
        choices=FORMATS,
    )
    overwrite: bool = option("replace an export in OUT", False)
    quantization: str | None = option(
        "type of the weights, for ctranslate2 (default: float32), argos (default: int8), onnx "
        f"(one of {', '.join(ONNX_QUANTIZATIONS)}; default: float32) and browser (as for onnx; "
        "default: int8)",
        choices=QUANTIZATIONS,
    )
    positions: int | None = option(
        "longest source and target in tokens, for hf, ctranslate2 and argos (default: the "
        "field max_position_embeddings; for the latter two without learned positions: 2048)",
        ge=1,
    )
    languages: list[tuple[str, str]] = option(
        "languages of sources and targets, for argos, e.g. en=English de=German",
        [],
        nargs=2,
        type=_read_language,
        metavar="CODE=NAME",
    )
    sentencepiece: str | None = option(
        "model of SentencePiece, for argos (default: that in MODEL, or one made from its "
        "tokenizer)",
        metavar="FILE",
    )

    runtime: str | None = option(
        "folder node_modules with the runtime, for browser (default: that of the working "
        "directory, or of one above it)",
        metavar="FOLDER",
    )

    def __post_init__(self) -> None:
        refuse(
            (
                self.to in ("onnx", "browser")
                and self.quantization not in (None, *ONNX_QUANTIZATIONS),
                f"--quantization {self.quantization} is for ctranslate2 and argos: choose "
                f"one of {', '.join(ONNX_QUANTIZATIONS)} for --to {self.to}",
            ),
            (
                self.to == "argos" and not self.languages,
                "--to argos needs --languages, such as en=English de=German",
            ),
        )


def check(options: Options) -> None:
    """Checks the paths."""
    check_model_directory(options.model)
    if options.to == "argos":
        check_output(options.output_dir, options.overwrite, {}, "OUT")
    else:
        check_output_directory(options.output_dir, options.overwrite, [options.model])
    if options.to == "browser":
        find_runtime(options.runtime)


def run(options: Options) -> None:
    """Exports the model."""
    from vanilla_transformer.files.loading import load_model, load_weights
    from vanilla_transformer.interop.tokenizers import load_tokenizer, save_tokenizer

    path, notes = options.output_dir, tuple[str, ...]()
    if options.to in ("hf", "onnx", "browser"):  # a tokenizer is not needed
        model, tokenizer = load_weights(options.model).eval(), load_tokenizer(options.model)
    else:
        model, tokenizer = load_model(options.model, "cpu")
    replaced = replaced_file if options.to == "argos" else replaced_directory
    with replaced(Path(path)) as unfinished:
        if options.to == "hf":
            from vanilla_transformer.interop.hf_models import export_to_transformers

            compared, notes = export_to_transformers(
                model, tokenizer, unfinished, options.model, options.positions
            )
            use = "transformers loads it without code of this package"
        elif options.to == "onnx":
            from vanilla_transformer.interop.onnx import export_to_onnx

            compared, notes = export_to_onnx(model, tokenizer, unfinished, options.quantization)
            use = "transformers.js loads it"
        elif options.to == "browser":
            from vanilla_transformer.browser.site import export_to_browser
            from vanilla_transformer.inference.quality import Calibration

            compared, notes = export_to_browser(
                model,
                tokenizer,
                unfinished,
                Path(os.path.abspath(options.model)).name,
                find_runtime(options.runtime),
                options.quantization,
                Calibration.load(Path(options.model)),
            )
            use = f"`python -m http.server -d {path}` shows it"
        elif options.to == "ctranslate2":
            from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

            convert_to_ctranslate2(
                model, tokenizer, unfinished, options.quantization, options.positions
            )
            save_tokenizer(tokenizer, unfinished)  # CTranslate2 reads tokens, not texts
            use = f"`ctranslate2.Translator({path!r})`"
        else:
            from vanilla_transformer.interop.argos import export_to_argos

            notes = export_to_argos(
                model,
                tokenizer,
                unfinished,
                options.model,
                options.languages,
                options.quantization or "int8",
                options.positions,
                options.sentencepiece,
            )
            use = f"`argostranslate.package.install_from_path({path!r})`"
    print(f"{path}: exported; {use}.")
    if options.to in ("hf", "onnx", "browser"):
        print(compared.describe())
    if tokenizer is None:
        print("The model has no tokenizer: save yours in the same directory.")
    for note in notes:
        print(note)
