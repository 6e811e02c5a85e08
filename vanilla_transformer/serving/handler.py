"""The handler of Hugging Face Inference Endpoints, which is `handler.py` beside a model.

`python -m vanilla_transformer.serving.handler MODEL` writes this file and a `requirements.txt` into
the directory of a saved model. This package is not needed there: the directory has the model's
code.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import pipeline

BATCH_SIZE = 32
"""Texts of a request that are computed together, unless the request says otherwise."""


class EndpointHandler:
    """Answers the requests of an endpoint."""

    def __init__(self, path: str = "") -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        make_pipeline: Any = pipeline  # its types know the tasks of transformers only
        self.pipeline = make_pipeline(
            "seq2seq-generation", model=path, device=device, trust_remote_code=True
        )

    def __call__(self, data: dict[str, Any]) -> Any:
        """Answers a request.

        Args:
            data: `inputs`, a text or a list of texts, and perhaps `parameters`: options of the
                pipeline and of `generate()`, such as `num_beams`, `max_new_tokens`,
                `num_return_sequences` and `return_scores`.

        Returns:
            For a text a list of outputs, for a list of texts a list of such lists. An output is a
            dictionary with `generated_text`, and with `score` if scores are asked for.

        Raises:
            ValueError: If `inputs` is missing or holds something else, or a parameter is wrong.
        """
        inputs, parameters = data.get("inputs"), data.get("parameters") or {}
        if isinstance(inputs, str):
            texts = [inputs]
        elif isinstance(inputs, list) and all(isinstance(text, str) for text in inputs):
            texts = inputs
        else:
            raise ValueError("`inputs` must be a text or a list of texts.")
        if not isinstance(parameters, dict):
            raise ValueError("`parameters` must be an object with options of `generate()`.")
        outputs = self.pipeline(texts, **{"batch_size": BATCH_SIZE, **parameters})
        return outputs[0] if isinstance(inputs, str) else outputs


def write_handler(directory: str) -> list[Path]:
    """Writes this file and the versions of its packages beside a saved model; returns the files."""
    folder = Path(directory)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{directory!r} holds no config.json: it is not a saved model.")
    torch_version = torch.__version__.partition("+")[0]
    contents = {
        "handler.py": Path(__file__).read_text(encoding="utf-8"),
        "requirements.txt": f"torch=={torch_version}\ntransformers=={transformers.__version__}\n",
    }
    for name, content in contents.items():
        path = folder / name
        if path.exists() and path.read_text(encoding="utf-8") != content:
            raise FileExistsError(f"{str(path)!r} exists: rename it, or delete it.")
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in contents]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Usage: python -m vanilla_transformer.serving.handler MODEL")
    try:
        print(*write_handler(sys.argv[1]), sep="\n")
    except OSError as error:
        sys.exit(str(error))
