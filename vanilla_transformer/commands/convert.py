"""Converts a checkpoint of another system into a saved model."""

import os
from argparse import BooleanOptionalAction
from dataclasses import asdict, dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line import UsageError, option_of
from vanilla_transformer.files.atomic_files import check_output_directory
from vanilla_transformer.files.model_directory import check_on_hub
from vanilla_transformer.interop.formats import SOURCES
from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.options import argument, option, read_assignment

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


@dataclass(frozen=True, kw_only=True)
class WeightOptions:
    """What the weights do not tell."""

    _argument_group_name = "weights and fields"

    heads: int | None = option("number of attention heads, which the weights do not tell", ge=1)
    rename: str | None = option(
        "YAML file that maps regular expressions for your names to the expected names",
        metavar="FILE",
    )
    table: str | None = option(
        "kind `table`: YAML file that maps your weights to those of this package", metavar="FILE"
    )
    dicts: str | None = option(
        "kind `fairseq`: directory of dict.SOURCE.txt and dict.TARGET.txt, that of the checkpoint "
        "unless given",
        metavar="DIR",
    )
    tokenizer: str | None = option(
        "kind `ctranslate2`: model of SentencePiece, or directory or name on the Hub of a "
        "tokenizer (default: what lies beside the model, or else words and subwords between "
        "spaces)",
        metavar="PATH",
    )
    source_eos: bool | None = option(
        "kind `ctranslate2`: whether sources end with the end token (default: unless the "
        "vocabulary is that of OpenNMT-py or Eole)",
        action=BooleanOptionalAction,
    )
    vocabularies: list[str] | None = option(
        "kind `marian-npz`: vocabulary (.spm, .yml, .json or text), or that of the source and that "
        "of the target (default: what decoder.yml names, or what lies beside the model)",
        metavar="FILE",
    )
    key: str | None = option(
        "entry that holds the weights, in a file that holds more than weights", metavar="KEY"
    )
    source_pad: int | None = option(
        "padding id of the source if it differs from pad_token_id; the two rows are swapped",
        ge=0,
        metavar="ID",
    )
    changes: list[tuple[str, Any]] | None = option(
        "config fields, e.g. pad_token_id=3",
        flag="--set",
        type=read_assignment,
        metavar="NAME=VALUE",
    )


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """What a model around `nn.Transformer` does not tell."""

    _argument_group_name = "kind `torch`"

    source_embedding: str | None = option("source's embedding matrix", metavar="NAME")
    target_embedding: str | None = option(
        "target's embedding matrix; may be the same", metavar="NAME"
    )
    generator: str | None = option("output projection, without `.weight`", metavar="NAME")
    positions: str | None = option(
        "learned:NAME, learned:SOURCE_NAME,TARGET_NAME, sinusoidal, none, or sinusoidal:NAME for a "
        "stored table, which is compared with the sinusoids",
        metavar="SCHEME",
    )
    scale_embedding: bool | None = option(
        "whether embeddings are multiplied by sqrt(d_model)", action=BooleanOptionalAction
    )
    norm_first: bool | None = option(
        "`norm_first` of nn.Transformer, which is off unless it was given",
        action=BooleanOptionalAction,
    )
    activation: str | None = option(
        "`activation` of nn.Transformer, relu unless given", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the subcommand."""

    source: str = argument(
        "file of the checkpoint; directory, or name on the Hub, of a model of transformers",
        "SOURCE",
    )
    output_dir: str = argument("directory of the new model", "OUT")
    kind: str | None = option(
        f"kind of the checkpoint: {', '.join(SOURCES)} (default: what its files tell)",
        flag="--from",
        choices=tuple(SOURCES),
        metavar="KIND",
    )
    overwrite: bool = option("replace the model in OUT", False)
    weights: WeightOptions
    torch: TorchOptions


def _options_of_kind(options: Options, kind: str) -> dict[str, Any]:
    """Returns the options that a kind takes, as far as they are given."""
    groups = (options.weights, options.torch)
    values = {name: value for group in groups for name, value in asdict(group).items()}
    parameters = signature(SOURCES[kind].load()).parameters
    taken = {name: values[name] for name in parameters if name in values}
    needed = [name for name in taken if parameters[name].default is Parameter.empty]
    if missing := [option_of(name) for name in needed if taken[name] is None]:
        raise UsageError(f"--from {kind} needs {', '.join(missing)}")
    given = {name: value for name, value in taken.items() if value is not None}
    if "changes" in given:
        given["changes"] = dict(given["changes"])
    return given


def check(options: Options) -> None:
    """Checks the paths."""
    source = options.source
    if options.kind is None and not Path(source).exists():
        raise UsageError(f"{source!r} is no local path: name its kind with --from")
    if options.kind and SOURCES[options.kind].on_hub:
        check_on_hub(source)
    else:
        os.stat(source)
    check_output_directory(options.output_dir, options.overwrite, [source])


def run(options: Options) -> None:
    """Converts the checkpoint and saves the model."""
    from vanilla_transformer.interop.funnel import convert

    kind = options.kind or recognised_kind(options.source)
    if options.kind is None:
        print(f"{options.source} is of the kind {kind}.")
    given = _options_of_kind(options, kind)
    done = convert(kind, options.source, options.output_dir, overwrite=options.overwrite, **given)
    path, model = options.output_dir, done.model
    print(f"{path}: {type(model).__name__}, {model.num_parameters():,} parameters.")
    print(done.outcome)
    if done.tokenizer is None:
        print("The source has no tokenizer: save yours in the same directory.")
    else:
        print(f"The tokenizer is a {type(done.tokenizer).__name__}.")
    for note in done.notes:
        print(note)
