"""`vanilla-transformer export`: a saved model in the format of another engine."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_model_argument,
    positive_integer,
)
from vanilla_transformer.data.atomic_files import (
    check_output_directory,
    replaced_directory,
    replaced_file,
)
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.names import QUANTIZATIONS

SUMMARY = "Writes a saved model in the format of another engine, or of transformers itself."
EXAMPLES = """
vanilla-transformer export --to hf runs/multi30k runs/multi30k-marian
vanilla-transformer export --to ctranslate2 runs/multi30k runs/multi30k-ct2 --quantization int8
vanilla-transformer export --to onnx runs/multi30k runs/multi30k-onnx --quantization int8
vanilla-transformer export --to argos runs/multi30k en_de.argosmodel \\
    --languages en=English de=German
"""
FORMATS = ("hf", "ctranslate2", "argos", "onnx")

ONNX_QUANTIZATIONS = ("float32", "int8")
"""The types of weights of a graph, among `QUANTIZATIONS`."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("export", SUMMARY, EXAMPLES, intermixed=True)
    add_model_argument(parser)
    parser.add_argument("output_dir", metavar="OUT", help="directory to write")
    parser.add_argument(
        "--to",
        required=True,
        choices=FORMATS,
        help="the format; hf: a class of transformers, which loads without code of this package",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an export in OUT")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="type of the weights, for ctranslate2 (default: float32), argos (default: int8), and "
        f"onnx ({' or '.join(ONNX_QUANTIZATIONS)}, default: float32)",
    )
    parser.add_argument(
        "--positions",
        type=positive_integer,
        metavar="N",
        help="longest source and target in tokens, for hf, ctranslate2 and argos (default: the "
        "field max_position_embeddings; for the latter two without learned positions: 2048)",
    )
    group = parser.add_argument_group("format `argos`")
    group.add_argument(
        "--languages",
        nargs=2,
        type=_read_language,
        metavar="CODE=NAME",
        help="languages of sources and targets, e.g. en=English de=German",
    )
    group.add_argument(
        "--sentencepiece",
        metavar="FILE",
        help="model of SentencePiece (default: that in MODEL, or one made from its tokenizer)",
    )
    return parser.parse_words(words)


def _read_language(text: str) -> tuple[str, str]:
    code, _, name = text.partition("=")
    if not re.fullmatch("[A-Za-z0-9-]+", code) or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not CODE=NAME, such as en=English")
    return code, name


def run(options: argparse.Namespace) -> None:
    """Exports the model."""
    if options.to == "onnx" and options.quantization not in (None, *ONNX_QUANTIZATIONS):
        raise UsageError(
            f"--quantization {options.quantization} is for ctranslate2 and argos: choose "
            f"{' or '.join(ONNX_QUANTIZATIONS)} for --to onnx"
        )
    check_model_directory(options.model)
    if options.to == "argos":
        if options.languages is None:
            raise UsageError("--to argos needs --languages, such as en=English de=German")
        path = Path(options.output_dir)
        if path.exists() and not options.overwrite:
            raise ValueError(f"{str(path)!r} exists: add --overwrite, or choose another file.")
    else:
        check_output_directory(options.output_dir, options.overwrite, [options.model])
    from vanilla_transformer.inference.loading import load_model, load_weights
    from vanilla_transformer.interop.tokenizers import load_tokenizer, save_tokenizer

    path, notes = options.output_dir, tuple[str, ...]()
    if options.to in ("hf", "onnx"):  # a tokenizer is not needed
        model, tokenizer = load_weights(options.model).eval(), load_tokenizer(options.model)
    else:
        model, tokenizer = load_model(options.model, "cpu")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    replaced = replaced_file if options.to == "argos" else replaced_directory
    with replaced(Path(path)) as unfinished:
        if options.to == "hf":
            from vanilla_transformer.interop.hf_models import export_to_transformers

            done = export_to_transformers(
                model, tokenizer, unfinished, options.model, options.positions
            )
            use, notes = f"a {done.class_name}, which needs no code", done.notes
        elif options.to == "onnx":
            from vanilla_transformer.interop.onnx import export_to_onnx

            done = export_to_onnx(model, tokenizer, unfinished, options.quantization)
            use, notes = f"`OnnxModel.load({path!r})`", done.notes
        elif options.to == "ctranslate2":
            from vanilla_transformer.interop.ctranslate2 import convert_to_ctranslate2

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
    if options.to in ("hf", "onnx"):
        print(done.comparison.describe())
    if tokenizer is None:
        print("The model has no tokenizer: save yours in the same directory.")
    for note in notes:
        print(note)
