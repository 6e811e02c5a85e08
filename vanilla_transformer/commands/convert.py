"""`vanilla-transformer convert`: a checkpoint of another system as a model of this package."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    nonnegative_integer,
    positive_integer,
)
from vanilla_transformer.interop.formats import SOURCES

SUMMARY = "Converts a checkpoint of another system into a saved model."
EXAMPLES = """
vanilla-transformer convert --from marian Helsinki-NLP/opus-mt-en-de runs/en-de
vanilla-transformer convert --from t5 ./flan-t5-small runs/flan
vanilla-transformer convert deployed runs/reopened --tokenizer sp.model
vanilla-transformer convert --from marian-npz model.npz runs/en-de --vocabularies en.spm de.spm
vanilla-transformer convert --from table run.pt runs/converted --table table.yaml
vanilla-transformer convert --from torch run.pt runs/converted --heads 8 \\
    --source-embedding src_tok_emb.weight --target-embedding tgt_tok_emb.weight \\
    --generator generator --positions sinusoidal:positions.pe --scale-embedding \\
    --set pad_token_id=1 eos_token_id=3 decoder_start_token_id=2
vanilla-transformer convert --from system-a run.pt runs/converted --heads 8 \\
    --key model_state_dict --rename rules.yaml --set eos_token_id=3 dropout=0.2
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("convert", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="file of the checkpoint; directory, or name on the Hub, of a model of transformers",
    )
    parser.add_argument("output_dir", metavar="OUT", help="directory of the new model")
    parser.add_argument(
        "--from",
        dest="kind",
        choices=tuple(SOURCES),
        metavar="KIND",
        help=f"kind of the checkpoint: {', '.join(SOURCES)} (default: what its files tell)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the model in OUT")
    _add_options_of_weights(parser)
    _add_options_of_torch(parser)
    _add_options_of_vocabularies(parser)
    options = parser.parse_words(words)
    if options.kind is None:
        from vanilla_transformer.interop.recognition import recognised_kind

        if not Path(options.source).exists():
            raise UsageError(f"{options.source!r} is no local path: name its kind with --from")
        options.kind = recognised_kind(options.source)
        print(f"{options.source} is of the kind {options.kind}.")
    needed = SOURCES[options.kind].required
    if missing := [name for name in needed if getattr(options, name) is None]:
        spelt = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise UsageError(f"--from {options.kind} needs {spelt}")
    return options


def _add_options_of_weights(parser: CommandParser) -> None:
    group = parser.add_argument_group("weights and fields")
    group.add_argument(
        "--heads",
        type=positive_integer,
        metavar="N",
        help="number of attention heads, which the weights do not tell",
    )
    group.add_argument(
        "--rename",
        metavar="FILE",
        help="YAML file that maps regular expressions for your names to the expected names",
    )
    group.add_argument(
        "--table",
        metavar="FILE",
        help="kind `table`: YAML file that maps your weights to those of this package",
    )
    group.add_argument(
        "--run-code",
        action="store_const",
        const=True,
        help="kind `table`: run the function that the table names under `compare`, your own code, "
        "and compare its logits",
    )
    group.add_argument(
        "--dicts",
        metavar="DIR",
        help="kind `fairseq`: directory of dict.SOURCE.txt and dict.TARGET.txt, that of the "
        "checkpoint unless given",
    )
    group.add_argument(
        "--key", help="entry that holds the weights, in a file that holds more than weights"
    )
    group.add_argument(
        "--source-pad",
        type=nonnegative_integer,
        metavar="ID",
        help="padding id of the source if it differs from pad_token_id; the two rows are swapped",
    )
    group.add_argument(
        "--set",
        dest="changes",
        nargs="+",
        type=_read_assignment,
        metavar="FIELD=VALUE",
        help="config fields, e.g. pad_token_id=3",
    )


def _add_options_of_torch(parser: CommandParser) -> None:
    group = parser.add_argument_group("kind `torch`")
    group.add_argument("--source-embedding", metavar="NAME", help="source's embedding matrix")
    group.add_argument(
        "--target-embedding", metavar="NAME", help="target's embedding matrix; may be the same"
    )
    group.add_argument("--generator", metavar="NAME", help="output projection, without `.weight`")
    group.add_argument(
        "--positions",
        metavar="SCHEME",
        help="learned:NAME, learned:SOURCE_NAME,TARGET_NAME, sinusoidal, none, or sinusoidal:NAME "
        "for a stored table, which is compared with the sinusoids",
    )
    group.add_argument(
        "--scale-embedding",
        action=argparse.BooleanOptionalAction,
        help="whether embeddings are multiplied by sqrt(d_model)",
    )
    group.add_argument(
        "--norm-first",
        action=argparse.BooleanOptionalAction,
        help="`norm_first` of nn.Transformer, which is off unless it was given",
    )
    group.add_argument(
        "--activation", metavar="NAME", help="`activation` of nn.Transformer, relu unless given"
    )


def _add_options_of_vocabularies(parser: CommandParser) -> None:
    group = parser.add_argument_group("kind `ctranslate2`")
    group.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="model of SentencePiece, or directory or name on the Hub of a tokenizer (default: "
        "what lies beside the model, or else words and subwords between spaces)",
    )
    group.add_argument(
        "--source-eos",
        action=argparse.BooleanOptionalAction,
        help="whether sources end with the end token (default: unless the vocabulary is that of "
        "OpenNMT-py or Eole)",
    )
    group = parser.add_argument_group("kind `marian-npz`")
    group.add_argument(
        "--vocabularies",
        nargs="+",
        metavar="FILE",
        help="vocabulary (.spm, .yml, .json or text), or that of the source and that of the target "
        "(default: what decoder.yml names, or what lies beside the model)",
    )


def _given_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options that the kind takes, as far as they are given."""
    kind = SOURCES[options.kind]
    named = {name: getattr(options, name) for name in (*kind.required, *kind.optional)}
    return {name: value for name, value in named.items() if value is not None}


def run(options: argparse.Namespace) -> None:
    """Converts the checkpoint and saves the model."""
    from vanilla_transformer.inference.loading import check_on_hub
    from vanilla_transformer.interop.funnel import convert

    if SOURCES[options.kind].on_hub:
        check_on_hub(options.source)
    given = _given_options(options)
    if "changes" in given:
        given["changes"] = dict(given["changes"])
    done = convert(
        options.kind, options.source, options.output_dir, overwrite=options.overwrite, **given
    )
    path, model = options.output_dir, done.model
    print(f"{path}: {type(model).__name__}, {model.num_parameters():,} parameters.")
    print(done.outcome)
    if done.tokenizer is None:
        print("The source has no tokenizer: save yours in the same directory.")
    else:
        print(f"The tokenizer is a {type(done.tokenizer).__name__}.")
    for note in done.notes:
        print(note)


def _read_assignment(text: str) -> tuple[str, Any]:
    import yaml

    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"{text!r}: the value cannot be read as YAML") from None
