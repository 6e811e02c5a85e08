"""All options of one run: read from a recipe and the command line, and completed for its data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Self, get_type_hints

from vanilla_transformer.command_line import CommandParser, add_options, make_options
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.rules import refuse
from vanilla_transformer.run.architecture_options import ArchitectureArguments
from vanilla_transformer.run.defaults import (
    CHOSEN_NAMES,
    choose_before_data,
    may_be_chosen,
    trains_with_muon,
)
from vanilla_transformer.run.options import (
    CardArguments,
    ModelArguments,
    PreparationArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.run.recipes import Recipe, expand_recipe
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

_NEEDS = {
    "target_vocab_size": "separate_vocabularies",
    "target_tokenizer_kind": "separate_vocabularies",
    "teacher_weight": "teacher",
    "simcut_cutoff": "simcut_alpha",
    "guided_alignment_weight": "guided_alignment",
}
"""For an option, the other one without which it has no effect."""


@dataclass(frozen=True)
class RunArguments:
    """The options of one run: the given ones, and the defaults that it has chosen."""

    data: DataArguments
    model: ModelArguments
    changes: ArchitectureArguments  # type: ignore[valid-type]  # made from the config
    tokenizer: TokenizerArguments
    training: TokenBudgetTrainingArguments
    preparation: PreparationArguments
    subwords: SubwordArguments
    card: CardArguments
    given: Mapping[str, Any]
    command: tuple[str, ...]  # on the model card
    recipe: Recipe | None
    defaults: Mapping[str, Any]  # empty before the data are known

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        command: Sequence[str] = (),
        recipe: Recipe | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Self:
        """Makes and checks the options of a run.

        Args:
            defaults: Values that fit the data, for options that are not given. None: the data are
                not known yet; the defaults that need no data are checked, and none is recorded.
        """
        chosen = choose_before_data(given) if defaults is None else defaults
        origin = {"given": given, "command": tuple(command), "recipe": recipe}
        return make_options(cls, {**chosen, **given, **origin, "defaults": defaults or {}})

    def __post_init__(self) -> None:
        metrics, watched = self.model.metrics, self.training.metric_for_best_model
        # An option that overrides one of a recipe may leave others of the recipe without effect.
        in_recipe = self.recipe.names if self.recipe else set()
        refuse(
            *(
                (
                    name not in in_recipe
                    and self.given.get(name)
                    and not self.given.get(needed)
                    and not may_be_chosen(needed, self.given),
                    f"`{name}` has no effect without `{needed}`: give both, or leave it out.",
                )
                for name, needed in _NEEDS.items()
            ),
            (
                bool({"muon_learning_rate", "muon_momentum"} & (self.given.keys() - in_recipe))
                and not trains_with_muon(self.given),
                "`muon_learning_rate` and `muon_momentum` have no effect without `optim` muon.",
            ),
            (  # Trainer would refuse it after the first evaluation
                watched is not None
                and watched.removeprefix("eval_") not in (*metrics, "loss", "gen_len"),
                f"`metric_for_best_model` {watched!r} is not computed: choose from loss, "
                f"{', '.join(metrics)}, or add it to `metrics`.",
            ),
            (
                self.model.minutes is not None and self.given.get("max_steps") is not None,
                "`minutes` and `max_steps` both say when the training ends: leave one of them out.",
            ),
            (
                self.model.size is not None and self.tokenizer.tokenizer_name_or_path is not None,
                "`size` chooses the vocabulary, and `tokenizer_name_or_path` names one: leave one "
                "of them out.",
            ),
        )

    @property
    def architecture(self) -> dict[str, Any]:
        """The fields of the config that differ from their defaults."""
        return {name: value for name, value in vars(self.changes).items() if value is not None}

    def changed(self, defaults: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """Returns a copy with other defaults, in which the named options are given, too.

        Args:
            defaults: None: the copy has no chosen defaults; `load_data` chooses them again.
        """
        return self.of({**self.given, **options}, self.command, self.recipe, defaults)


TOPICS: tuple[Any, ...] = tuple(filter(is_dataclass, get_type_hints(RunArguments).values()))
"""The dataclasses of all options."""


def option_parser(summary: str = "", examples: str = "") -> CommandParser:
    """Makes the parser of all options."""
    parser = CommandParser("train", summary, examples)
    parser.usage = f"{parser.prog} [RECIPE] [--option value ...]"
    for topic in TOPICS:
        group = parser.add_argument_group(topic._argument_group_name)
        add_options(group, topic, switches_take_values=True)
    for action in parser._actions:
        if action.dest in CHOSEN_NAMES:
            action.help = f"{action.help} Chosen for a new model."
    return parser


def read_given(argv: Sequence[str]) -> tuple[dict[str, Any], Recipe | None]:
    """Returns the given options of a command line by name, and the recipe that it begins with."""
    words, recipe = expand_recipe(argv)
    return option_parser().parse_given(words), recipe


def parse_arguments(argv: Sequence[str], command: Sequence[str] | None = None) -> RunArguments:
    """Reads the options of a run and checks them.

    Args:
        argv: Options, perhaps after a recipe.
        command: Words of the command on the model card. None: `vanilla-transformer train` with
            the arguments.
    """
    given, recipe = read_given(argv)
    return RunArguments.of(given, command or ("vanilla-transformer", "train", *argv), recipe)
