"""Trims the vocabulary of a saved model to your texts, or adds tokens."""

from dataclasses import asdict, dataclass

from vanilla_transformer.commands.options import ModelOptions
from vanilla_transformer.files.atomic_files import check_output_directory
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import check_files
from vanilla_transformer.options import argument, option
from vanilla_transformer.rules import refuse

EXAMPLES = """
vanilla-transformer vocabulary runs/en-de runs/small --keep-for train.en train.de
vanilla-transformer vocabulary runs/nllb runs/en-de --keep-for train.en \\
    --keep-for-target train.de --keep-frequent 2000
vanilla-transformer vocabulary runs/en-de runs/larger --add-tokens "<2fr>"
"""


@dataclass(frozen=True, kw_only=True)
class TrimOptions:
    """What is kept."""

    _argument_group_name = "fewer tokens"

    keep_for: list[str] = option(
        "texts of both sides, one sentence a line, plain or .gz", [], metavar="FILE"
    )
    keep_for_target: list[str] = option(
        "texts of the target; --keep-for then holds those of the source", [], metavar="FILE"
    )
    keep_frequent: int = option(
        "also keep the N other tokens with the lowest ids, which are the most frequent ones",
        0,
        ge=0,
    )


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """The options of the subcommand."""

    output_dir: str = argument("directory of the new model", "OUT")
    overwrite: bool = option("replace the model in OUT", False)
    add_tokens: list[str] = option(
        "add tags or languages, which stay whole in texts", [], metavar="TOKEN"
    )
    trim: TrimOptions

    def __post_init__(self) -> None:
        refuse(
            (
                bool(self.trim.keep_for) == bool(self.add_tokens),
                "give --keep-for to trim the vocabulary, or --add-tokens to add to it",
            )
        )


def check(options: Options) -> None:
    """Checks the paths."""
    check_model_directory(options.model)
    texts = [*options.trim.keep_for, *options.trim.keep_for_target]
    check_files(*texts)
    check_output_directory(options.output_dir, options.overwrite, [options.model, *texts])


def run(options: Options) -> None:
    """Trims the vocabulary, and prints what that saves; or adds tokens."""
    (trim if options.trim.keep_for else add_tokens)(options)
    print(f"{options.output_dir}: saved.")


def trim(options: Options) -> None:
    """Trims the vocabulary of the model, and prints what that saves."""
    from vanilla_transformer.interop.changed_vocabulary import trim_vocabulary

    done = trim_vocabulary(
        options.model, options.output_dir, **asdict(options.trim), overwrite=options.overwrite
    )
    rows = (
        ("source tokens", "{0.tokens[0]:,}"),
        ("target tokens", "{0.tokens[1]:,}"),
        ("parameters", "{0.parameters:,}"),
        ("weights, bytes", "{0.memory_bytes:,}"),
    )
    print(f"{'':<26}{'before':>16}{'after':>16}")
    for name, form in rows:
        print(f"{name:<26}{form.format(done.before):>16}{form.format(done.after):>16}")
    print(done.describe())


def add_tokens(options: Options) -> None:
    """Adds tokens to a model."""
    from vanilla_transformer.interop.changed_vocabulary import grow_vocabulary

    grow_vocabulary(options.model, options.output_dir, options.add_tokens, options.overwrite)
    print(f"New tokens: {' '.join(options.add_tokens)}")
    print("Train it: new tokens are the means of their pieces.")
