"""What a run trains on and scores with, in short, so that a resumed run notices a change."""

import json
from typing import Any

from vanilla_transformer.data.file_contents import rows_digest
from vanilla_transformer.run.plan import RunPlan

_SEARCH_SETTINGS = {  # with what None stands for
    "num_beams": 1,
    "max_length": None,
    "max_new_tokens": None,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "early_stopping": False,
    "do_sample": False,
}


def inputs_of(plan: RunPlan) -> dict[str, Any]:
    """Describes the texts of a run and the search of its evaluations.

    Args:
        plan: Plan of the run.

    Returns:
        A digest of the texts of each split, by the name of the split, and the settings of the
        search, by "search"; and the length limits.
    """
    settings = {
        name: default if (value := getattr(plan.search.settings, name)) is None else value
        for name, default in _SEARCH_SETTINGS.items()
    }
    digests = {split: rows_digest(rows) for split, rows in plan.splits.items()}
    limits = {"max_source_length": plan.limits.source, "max_target_length": plan.limits.target}
    return {**digests, **limits, "search": json.dumps(settings)}
