"""Data that `prepare` has made: texts, tokenizer and token ids in a folder, and their manifest."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from datasets import DatasetDict, load_from_disk

from vanilla_transformer import __version__
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.encoding import tokenizer_digest
from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.data.shards import INDEX, Shards
from vanilla_transformer.inference.loading import load_tokenizer
from vanilla_transformer.run.options import TokenizerArguments
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.run.plan import RunPlan

MANIFEST = "manifest.json"
_FORMAT = 1
_FIRST_TEXTS = 100  # of the training data: for the model card, and to show outputs
_LIMITS = ("max_source_length", "max_target_length")
_DECIDING_OPTIONS = (
    *(field.name for topic in (DataArguments, TokenizerArguments) for field in fields(topic)),
    *("tokenizer_sample", "guided_alignment"),
)
"""The options that decide what prepared data hold."""


@dataclass(frozen=True)
class PreparedFolder:
    """A folder of prepared data.

    Attributes:
        manifest: What is known of the data; it is written anew when they are complete.
    """

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer."""
        return self.folder / "tokenizer"

    # Reading ----------------------------------------------------------------------------------

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the manifest of a folder.

        Raises:
            OSError: If there is none.
            ValueError: If another version of the package has made it.
        """
        manifest = read_object(folder / MANIFEST)
        if manifest.get("format") != _FORMAT:
            raise ValueError(
                f"{str(folder)!r} was prepared by version {manifest.get('vanilla_transformer')} of "
                f"this package, whose format {manifest.get('format')} is not {_FORMAT}: prepare "
                "the data again, in another directory."
            )
        return cls(folder, manifest)

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options that are given, and those that the data were prepared with.

        Raises:
            ValueError: If one of both differs.
        """
        recorded = self.manifest["options"]
        for name in _DECIDING_OPTIONS:
            if name in given and given[name] != recorded.get(name):
                raise ValueError(
                    f"`{name}` is {given[name]!r}, but {str(self.folder)!r} was prepared with "
                    f"{recorded.get(name)!r}: leave the option out, or prepare the data again in "
                    "another directory."
                )
        return {**given, **recorded}

    def options_of_run(self, arguments: RunArguments) -> dict[str, Any]:
        """Returns the options of a run on these data.

        Raises:
            ValueError: If the data are incomplete, or were prepared with other options.
        """
        options = self.options(arguments.given)
        if not self.manifest["complete"]:
            raise ValueError(
                f"{str(self.folder)!r} is not wholly prepared: give the command of its "
                "preparation again, which goes on where it was."
            )
        if arguments.subwords.enabled and not self.manifest["holds_all_texts"]:
            raise ValueError(
                f"Sampled subwords need the texts, which {str(self.folder)!r} lacks: prepare the "
                "data with the same option (`bpe_dropout` or `unigram_alpha`)."
            )
        return {**options, "tokenizer_name_or_path": str(self.tokenizer)}

    def texts(self) -> DatasetDict:
        """Opens the texts of all splits; those of the training data may be the first ones alone."""
        return load_from_disk(str(self.folder / "texts"))

    def open(self, plan: RunPlan) -> DatasetDict:
        """Opens the token ids of the splits of a plan, without reading them.

        Raises:
            ValueError: If a file has changed since, or the model takes texts of another length.
        """
        digest = tokenizer_digest(load_tokenizer(str(self.tokenizer)))
        self._check_unchanged(self.tokenizer, digest, self.manifest["tokenizer"])
        for name in _LIMITS:
            if getattr(plan, name) != (limit := self.manifest["options"].get(name)):
                raise ValueError(
                    f"The model takes at most {getattr(plan, name)} tokens, but "
                    f"{str(self.folder)!r} was prepared with `{name}` {limit}: prepare the data "
                    "again with that limit."
                )
        encoded = DatasetDict()
        for name in plan.splits:
            index, recorded = self.folder / name / INDEX, self.manifest["splits"][name]["index"]
            self._check_unchanged(index, content_digest(index), recorded)
            encoded[name] = Shards.read(self.folder / name).open()
        return encoded

    def _check_unchanged(self, path: Path, digest: str, recorded: str) -> None:
        if digest != recorded:
            raise ValueError(
                f"{str(path)!r} is not the one that {MANIFEST} names: copy the whole folder again, "
                "or prepare the data again, in another directory."
            )

    # Making -----------------------------------------------------------------------------------

    @classmethod
    def begin(cls, arguments: RunArguments) -> Self:
        """Begins or goes on with the preparation of `output_dir`.

        An unfinished one with other options, which may have been refused, is begun anew.

        Raises:
            ValueError: If the directory holds other files.
        """
        folder, given = Path(str(arguments.training.output_dir)), arguments.given
        options = {name: given[name] for name in _DECIDING_OPTIONS if name in given}
        if (folder / MANIFEST).is_file():
            begun = cls.read(folder)
            if begun.manifest["complete"] or begun.manifest["options"] == options:
                return begun
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if any(folder.iterdir()):
            raise ValueError(
                f"`output_dir` {str(folder)!r} is not empty, and holds no prepared data: "
                "choose another directory."
            )
        return cls(folder, {}).with_manifest({"options": options, "complete": False})

    def with_manifest(self, manifest: Mapping[str, Any]) -> Self:
        """Writes another manifest, and returns the folder with it."""
        made_by = {"format": _FORMAT, "vanilla_transformer": __version__}
        whole = {**made_by, **manifest}
        write_atomic(self.folder / MANIFEST, json.dumps(whole, indent=1) + "\n")
        return type(self)(self.folder, whole)

    def finish(self, plan: RunPlan, encoded: DatasetDict, counts: Mapping[str, int]) -> None:
        """Saves the texts that later runs need, and completes the manifest."""
        arguments, texts = plan.options, plan.splits
        holds_all_texts = arguments.subwords.enabled
        if not holds_all_texts:
            first = texts["train"].select(range(min(_FIRST_TEXTS, len(texts["train"]))))
            texts = DatasetDict({**texts, "train": first})
        texts.save_to_disk(self.folder / "texts")
        options = {
            **vars(arguments.data),
            **vars(arguments.tokenizer),
            **self.manifest["options"],
            **{name: getattr(plan, name) for name in _LIMITS},
        }
        self.with_manifest(
            {
                "complete": True,
                "command": list(arguments.command),
                "options": {name: value for name, value in options.items() if value is not None},
                "facts": counts,
                "tokenizer": tokenizer_digest(load_tokenizer(str(self.tokenizer))),
                "holds_all_texts": holds_all_texts,
                "splits": {
                    name: {"pairs": len(rows), "index": content_digest(self.folder / name / INDEX)}
                    for name, rows in encoded.items()
                },
            }
        )
