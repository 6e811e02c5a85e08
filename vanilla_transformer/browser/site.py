"""Exports a model as a folder that a browser opens: a page, and the model that it computes itself.

The graphs, the tokenizer and the configs are those of `onnx`. `site.json` holds what else the
scripts need; the runtime comes from packages of npm.
"""

import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import onnxruntime

from vanilla_transformer.browser.javascript import script
from vanilla_transformer.browser.runtime import RUNTIME
from vanilla_transformer.files.file_contents import content_digest, text_digest
from vanilla_transformer.interop.comparison import Comparison
from vanilla_transformer.interop.onnx import DECODER, ENCODER, FOLDER, TYPES, export_to_onnx
from vanilla_transformer.interop.tokenizers import TARGET_FOLDER
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.model.directions import (
    Direction,
    in_language,
    language_tokens,
    recorded_directions,
    with_first_token,
)
from vanilla_transformer.names import DOUBTFUL
from vanilla_transformer.search import Search, needed_start
from vanilla_transformer.text.languages import words_have_spaces
from vanilla_transformer.text.repetition import tokens_not_repeated
from vanilla_transformer.tokenizer_sides import has_two_vocabularies, vocabulary_of
from vanilla_transformer.web import FOLDER as WEB
from vanilla_transformer.web import PAGE

_NEUTRAL = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}
_LOADED = ("*.json", f"{TARGET_FOLDER}/*.json", f"{FOLDER}/*.onnx", "runtime/*.wasm")


def export_to_browser(
    model: Any,
    tokenizer: Any,
    output_dir: Path,
    name: str,
    runtime: Path,
    quantization: str | None = None,
    calibration: Any = None,
) -> tuple[Comparison, tuple[str, ...]]:
    """Writes the folder; see `export_to_onnx` for what is returned.

    Args:
        name: The name of the model on the page.
        calibration: That of `inference.quality`. None: the model has none.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("The model has no tokenizer.json, which the page reads: it needs one.")
    kind = quantization or "int8"
    compared, notes = export_to_onnx(model, tokenizer, output_dir, kind)
    _copy_runtime(runtime, output_dir / "runtime")
    for file in (*PAGE, "translator.js", "worker.js", "kept.js"):
        shutil.copyfile(WEB / file, output_dir / file)
    (output_dir / "patterns.js").write_text(script(), encoding="utf-8")
    search = Search.resolve(model.generation_config, {"num_beams": 1}, config=model.config)
    files = sorted(path for pattern in _LOADED for path in output_dir.glob(pattern))
    site = {
        "name": name,
        "version": text_digest(" ".join(map(content_digest, files)))[:16],
        "files": {path.relative_to(output_dir).as_posix(): path.stat().st_size for path in files},
        "runtime": "runtime/ort-wasm-simd-threaded.wasm",
        "graphs": [f"{FOLDER}/{graph}{TYPES[kind][1]}.onnx" for graph in (ENCODER, DECODER)],
        "targets": TARGET_FOLDER if has_two_vocabularies(tokenizer) else None,
        "quality": calibration and calibration.to_dict(),
        "doubtful": DOUBTFUL,
        **_search_fields(model.config, tokenizer, search),
    }
    (output_dir / "site.json").write_text(json.dumps(site), encoding="utf-8")
    settings = search.settings.to_dict()
    lost = [n for n, value in _NEUTRAL.items() if settings.get(n) not in (None, value)]
    if lost:
        notes = (*notes, f"A browser searches greedily, without the settings {', '.join(lost)}.")
    return compared, notes


def _search_fields(config: Any, tokenizer: Any, search: Search) -> dict[str, Any]:
    """Returns what the script needs to read texts, and to search."""
    settings = search.settings
    ends = settings.eos_token_id
    single = (ids[0] for ids in settings.bad_words_ids or () if len(ids) == 1)
    return {
        "directions": list(_directions(tokenizer, settings)),
        "ends": ends if isinstance(ends, list) else [ends],
        "banned": sorted({*(settings.suppress_tokens or ()), *single}),
        "longest": search.max_new_tokens,
        "limit": min(int(tokenizer.model_max_length), config.max_position_embeddings),
        "silent": tokenizer.all_special_ids,
        "unknown": tokenizer.unk_token_id,
        "keepsUnknown": not has_two_vocabularies(tokenizer),
        "placeholders": list(getattr(tokenizer, "placeholders", ())),
        "repeats": tokens_not_repeated(vocabulary_of(tokenizer, "target")),
    }


def _directions(tokenizer: Any, settings: Any) -> Iterator[dict[str, Any]]:
    """Yields what asks the model for each of its directions."""
    tokens = [*language_tokens(tokenizer)]
    rows = [row[:2] for row in recorded_directions(tokenizer)]
    pairs = [pair for pair in product(tokens, tokens) if len({*pair}) == 2] or rows
    for source, target in pairs or [(None, None)]:
        direction = Direction.resolve(tokenizer, settings, source, target)
        begun = with_first_token(settings, direction.begin)
        view = in_language(tokenizer, source)
        alone = view("a", add_special_tokens=False)["input_ids"]
        whole = view("a")["input_ids"]
        place = next(n for n in range(len(whole)) if whole[n : n + len(alone)] == alone)
        yield {
            "source": direction.source or "any",
            "target": direction.target or "output",
            "language": known_tag(direction.target) or "",
            "spaces": words_have_spaces(known_tag(direction.target)),
            "tag": direction.tag and f"{direction.tag} ",
            "start": needed_start(begun),
            "begun": [] if (first := begun.forced_bos_token_id) is None else [first],
            "before": whole[:place],
            "after": whole[place + len(alone) :],
        }


def _copy_runtime(runtime: Path, folder: Path) -> None:
    """Copies the runtime and its licences."""
    folder.mkdir()
    for name, (_, files) in RUNTIME.items():
        for file in files:
            shutil.copyfile(runtime / name / "dist" / file, folder / file)
    shutil.copyfile(runtime / "@huggingface/tokenizers/LICENSE", folder / "LICENSE-tokenizers.txt")
    home = Path(onnxruntime.__file__).parent  # the package of npm has no file of its own
    for file, copied in (("LICENSE", "LICENSE-onnxruntime.txt"), ("ThirdPartyNotices.txt",) * 2):
        shutil.copyfile(home / file, folder / copied)
